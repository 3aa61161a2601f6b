// Convolutions of images that are multiplied with a mask: the operand is computed, and read at neighbouring places.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// out[n, f, y, z] = sum over k, s and t of x[n, k, y + d s, z + d t] mask[n, y + d s, z + d t] w[f, k, s, t], channels first. `numbered`: and of
/// the number of the tap, s.
inline Nest masked_images(int dilation = 1, bool numbered = false) {
  const std::string d = std::to_string(dilation), side = "Y + " + std::to_string(2 * dilation),
                    cell = "0 <= n < B and 0 <= f < F and 0 <= y < Y and 0 <= z < Y", place = "y + " + d + "*s, z + " + d + "*t]";
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  ScalarExpr factor = half(0) * half(1);
  if (numbered) factor = factor * ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  NestBuilder builder("masked_images", {{"B", 2}, {"C", 32}, {"F", 40}, {"Y", 9}});
  builder.tensor("x", TensorRole::input, {"B", "C", side, side}, ElementType::f16)
      .tensor("mask", TensorRole::input, {"B", side, side}, ElementType::f16)
      .tensor("w", TensorRole::input, {"F", "C", "3", "3"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "F", "Y", "Y"})
      .tensor("out", TensorRole::output, {"B", "F", "Y", "Y"}, ElementType::f16)
      .statement("init[n, f, y, z] : " + cell, "sums[n, f, y, z]", {}, number(0))
      .statement("sum[n, f, y, z, k, s, t] : " + cell + " and 0 <= k < C and 0 <= s < 3 and 0 <= t < 3", "sums[n, f, y, z]",
                 {"x[n, k, " + place, "mask[n, " + place, "w[f, k, s, t]"}, factor * half(2), ReductionOp::add,
                 numbered ? std::vector<std::string>{"s"} : std::vector<std::string>{})
      .statement("out[n, f, y, z] : " + cell, "out[n, f, y, z]", {"sums[n, f, y, z]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * number(0.1)));
  return builder.build();
}

}  // namespace nestor::samples
