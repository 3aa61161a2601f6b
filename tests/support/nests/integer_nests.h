// Products of matrices of integers, which rule integer_product adds up in bf16.
#pragma once

#include "support/nests/sample_nests.h"

#include <limits>
#include <string>

namespace nestor::samples {

/// out[b, i, j] = s[b, i] f32(sum over k of x[b, i, k] y[b, j, k]) for integers x and y; `terms` of each sum, `part`: of results.
inline Nest integer_products(const std::string& terms = "64", const std::string& part = "") {
  const std::string element = "0 <= b < B and 0 <= i < N and 0 <= j < M" + part, pair = element + " and 0 <= k < " + terms;
  const auto whole = [](int ordinal) { return read(ordinal, ElementType::i32); };
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"B", 2}, {"N", 512}, {"M", 512}};
  if (terms == "K") sizes.emplace_back("K", 64);
  return NestBuilder("integer_products", sizes)
      .tensor("x", TensorRole::input, {"B", "N", terms}, ElementType::i32)
      .tensor("y", TensorRole::input, {"B", "M", terms}, ElementType::i32)
      .tensor("s", TensorRole::input, {"B", "N"})
      .tensor("dot", TensorRole::temporary, {"B", "N", "M"}, ElementType::i32)
      .tensor("out", TensorRole::output, {"B", "N", "M"})
      .statement("dot_init[b, i, j] : " + element, "dot[b, i, j]", {}, ScalarExpr::constant(0, ElementType::i32))
      .statement("dot[b, i, j, k] : " + pair, "dot[b, i, j]", {"x[b, i, k]", "y[b, j, k]"},
                 ScalarExpr::make(ScalarOp::mul, {whole(0), whole(1)}), ReductionOp::add)
      .statement("out[b, i, j] : " + element, "out[b, i, j]", {"s[b, i]", "dot[b, i, j]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, whole(1)))
      .build();
}

/// Attention whose queries and keys are integers: softmax over j of s[b, i] f32(sum over k of x[b, i, k] y[b, j, k]), times v[b, j, e].
inline Nest integer_attention() {
  const std::string row = "0 <= b < B and 0 <= i < N", pair = row + " and 0 <= j < M", element = row + " and 0 <= e < 64";
  const auto whole = [](int ordinal) { return read(ordinal, ElementType::i32); };
  NestBuilder builder("integer_attention", {{"B", 2}, {"N", 512}, {"M", 512}});
  for (const char* name : {"x", "y"})
    builder.tensor(name, TensorRole::input, {"B", name == std::string("x") ? "N" : "M", "64"}, ElementType::i32);
  builder.tensor("v", TensorRole::input, {"B", "M", "64"}, ElementType::bf16).tensor("s", TensorRole::input, {"B", "N"});
  builder.tensor("dot", TensorRole::temporary, {"B", "N", "M"}, ElementType::i32);
  for (const char* name : {"score", "power"}) builder.tensor(name, TensorRole::temporary, {"B", "N", "M"});
  for (const char* name : {"top", "total"}) builder.tensor(name, TensorRole::temporary, {"B", "N"});
  return builder.tensor("sum", TensorRole::temporary, {"B", "N", "64"})
      .tensor("out", TensorRole::output, {"B", "N", "64"})
      .statement("dot_init[b, i, j] : " + pair, "dot[b, i, j]", {}, ScalarExpr::constant(0, ElementType::i32))
      .statement("dot[b, i, j, k] : " + pair + " and 0 <= k < 64", "dot[b, i, j]", {"x[b, i, k]", "y[b, j, k]"},
                 ScalarExpr::make(ScalarOp::mul, {whole(0), whole(1)}), ReductionOp::add)
      .statement("score[b, i, j] : " + pair, "score[b, i, j]", {"s[b, i]", "dot[b, i, j]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, whole(1)))
      .statement("top_init[b, i] : " + row, "top[b, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[b, i, j] : " + pair, "top[b, i]", {"score[b, i, j]"}, read(0), ReductionOp::max)
      .statement("power[b, i, j] : " + pair, "power[b, i, j]", {"score[b, i, j]", "top[b, i]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)}))
      .statement("total_init[b, i] : " + row, "total[b, i]", {}, number(0))
      .statement("total[b, i, j] : " + pair, "total[b, i]", {"power[b, i, j]"}, read(0), ReductionOp::add)
      .statement("sum_init[b, i, e] : " + element, "sum[b, i, e]", {}, number(0))
      .statement("sum[b, i, e, j] : " + element + " and 0 <= j < M", "sum[b, i, e]", {"power[b, i, j]", "v[b, j, e]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16)), ReductionOp::add)
      .statement("out[b, i, e] : " + element, "out[b, i, e]", {"sum[b, i, e]", "total[b, i]"}, read(0) / read(1))
      .build();
}

}  // namespace nestor::samples
