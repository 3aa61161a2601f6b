// Sums of exponentials of sums, which rule factor_exponential makes products of.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// exp(k + w) as sums of a nest with these reads, k in `type`.
inline ScalarExpr exponential_of_sum(ElementType type, ScalarOp op = ScalarOp::exp) {
  return ScalarExpr::make(op, {ScalarExpr::cast(ElementType::f32, read(0, type)) + read(1)});
}

/// total[b, i, c] = sum over j of exp(k[b, j, c] + w[i, j]), mean likewise of such terms times v[b, j, c], out = mean / total; `mask`: of pairs, `part`: of
/// results.
inline Nest exponential_sums(ElementType type = ElementType::bf16, ScalarOp op = ScalarOp::exp,
                             ElementType result = ElementType::f32, const std::string& mask = "", const std::string& part = "") {
  const std::string element = "0 <= b < B and 0 <= i < N and 0 <= c < C" + part, pair = element + " and 0 <= j < N" + mask;
  const ScalarExpr power = exponential_of_sum(type, op), quotient = read(0) / read(1);
  NestBuilder builder("exponential_sums", {{"B", 2}, {"N", 512}, {"C", 256}});
  for (const char* name : {"k", "v"}) builder.tensor(name, TensorRole::input, {"B", "N", "C"}, type);
  builder.tensor("w", TensorRole::input, {"N", "N"});
  for (const char* name : {"total", "mean"}) builder.tensor(name, TensorRole::temporary, {"B", "N", "C"});
  return builder.tensor("out", TensorRole::output, {"B", "N", "C"}, result)
      .statement("total_init[b, i, c] : " + element, "total[b, i, c]", {}, number(0))
      .statement("total[b, i, c, j] : " + pair, "total[b, i, c]", {"k[b, j, c]", "w[i, j]"}, power, ReductionOp::add)
      .statement("mean_init[b, i, c] : " + element, "mean[b, i, c]", {}, number(0))
      .statement("mean[b, i, c, j] : " + pair, "mean[b, i, c]", {"k[b, j, c]", "w[i, j]", "v[b, j, c]"},
                 power * ScalarExpr::cast(ElementType::f32, read(2, type)), ReductionOp::add)
      .statement("out[b, i, c] : " + element, "out[b, i, c]", {"mean[b, i, c]", "total[b, i, c]"},
                 result == ElementType::f32 ? quotient : ScalarExpr::cast(result, quotient))
      .build();
}

/// Decays of each channel within chunks: seen[c, i, j] = sum over d of q[c, i, d] k[c, j, d] exp(g[c, i, d] - g[c, j, d]) for j <= i,
/// out[c, i, e] = sum over j of seen[c, i, j] v[c, j, e]. `known`: a result of its own has such sums of k and k for all i and j.
inline Nest channel_decays(bool known = false, int channels = 64) {
  const std::string width = std::to_string(channels);
  const std::string pair = "0 <= c < C and 0 <= i < 64 and 0 <= j <= i",
                    element = "0 <= c < C and 0 <= i < 64 and 0 <= e < " + width;
  NestBuilder builder("channel_decays", {{"C", 2}});
  for (const char* name : {"q", "k", "v"}) builder.tensor(name, TensorRole::input, {"C", "64", width}, ElementType::bf16);
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::bf16)); };
  const auto decayed = half(0) * half(1) * ScalarExpr::make(ScalarOp::exp, {read(2) - read(3)});
  builder.tensor("g", TensorRole::input, {"C", "64", width});
  if (known) {
    const std::string all = "0 <= c < C and 0 <= i < 64 and 0 <= j < 64";
    builder.tensor("keys", TensorRole::temporary, {"C", "64", "64"})
        .tensor("known", TensorRole::output, {"C", "64", "64"})
        .statement("keys_init[c, i, j] : " + all, "keys[c, i, j]", {}, number(0))
        .statement("keys[c, i, j, d] : " + all + " and 0 <= d < " + width, "keys[c, i, j]",
                   {"k[c, i, d]", "k[c, j, d]", "g[c, i, d]", "g[c, j, d]"}, decayed, ReductionOp::add)
        .statement("known[c, i, j] : " + all, "known[c, i, j]", {"keys[c, i, j]"}, read(0) * number(2));
  }
  return builder.tensor("seen", TensorRole::temporary, {"C", "64", "64"})
      .tensor("sum", TensorRole::temporary, {"C", "64", width})
      .tensor("out", TensorRole::output, {"C", "64", width}, ElementType::bf16)
      .statement("seen_init[c, i, j] : " + pair, "seen[c, i, j]", {}, number(0))
      .statement("seen[c, i, j, d] : " + pair + " and 0 <= d < " + width, "seen[c, i, j]",
                 {"q[c, i, d]", "k[c, j, d]", "g[c, i, d]", "g[c, j, d]"}, decayed, ReductionOp::add)
      .statement("sum_init[c, i, e] : " + element, "sum[c, i, e]", {}, number(0))
      .statement("sum[c, i, e, j] : " + element + " and 0 <= j <= i", "sum[c, i, e]", {"seen[c, i, j]", "v[c, j, e]"},
                 read(0) * half(1), ReductionOp::add)
      .statement("out[c, i, e] : " + element, "out[c, i, e]", {"sum[c, i, e]"}, ScalarExpr::cast(ElementType::bf16, read(0)))
      .build();
}

}  // namespace nestor::samples
