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

}  // namespace nestor::samples
