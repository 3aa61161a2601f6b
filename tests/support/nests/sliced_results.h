// One product of matrices whose result is cut into several.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// line[m, t] = sum over k of x[m, k] w[t, k], biased[m, t] = line[m, t] + bias[t] for t < 2 O + 64, of which q has the first O columns, v the next
/// ones, and gate, of 64 columns, what is behind `skipped` others.
inline Nest sliced_results(const std::string& v_from = "O", const std::string& gate_from = "2 O") {
  const std::string all = " : 0 <= m < M and 0 <= t < 2 O + 64", part = " : 0 <= m < M and 0 <= o < O";
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  return NestBuilder("sliced_results", {{"M", 3}, {"O", 64}, {"K", 5}})
      .tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"2 O + 64", "K"}, ElementType::f16)
      .tensor("bias", TensorRole::input, {"2 O + 64"})
      .tensor("line", TensorRole::temporary, {"M", "2 O + 64"})
      .tensor("biased", TensorRole::temporary, {"M", "2 O + 64"}, ElementType::f16)
      .tensor("q", TensorRole::output, {"M", "O"})
      .tensor("v", TensorRole::output, {"O", "M"})
      .tensor("gate", TensorRole::output, {"M", "64"})
      .statement("line_init[m, t]" + all, "line[m, t]", {}, number(0))
      .statement("line[m, t, k]" + all + " and 0 <= k < K", "line[m, t]", {"x[m, k]", "w[t, k]"}, half(0) * half(1),
                 ReductionOp::add)
      .statement("biased[m, t]" + all, "biased[m, t]", {"line[m, t]", "bias[t]"},
                 ScalarExpr::cast(ElementType::f16, read(0) + read(1)))
      .statement("q[m, o]" + part, "q[m, o]", {"biased[m, o]"}, half(0))
      .statement("v[m, o]" + part, "v[o, m]", {"biased[m, o + " + v_from + "]"}, half(0) * number(2))
      .statement("gate[m, o] : 0 <= m < M and 0 <= o < 64", "gate[m, o]", {"biased[m, o + " + gate_from + "]"},
                 apply(ScalarOp::tanh, half(0)))
      .build();
}

}  // namespace nestor::samples
