// Rows that are multiplied with those before them, by their distance.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// s[i, a] = sum over e of q[i, e] k[place, e], p[i, a] = 2 s[i, a], out[i, d] = sum over a < `distances` of p[i, a] v[place, d], where the place is
/// one of the N rows; `of_p`: what the last sum reads p along.
inline Nest window_of_distances(const std::string& place = "i - a", const std::string& distances = "40",
                                const std::string& of_p = "i, a") {
  const std::string element = "0 <= i < N", there = element + " and 0 <= a < " + distances + " and 0 <= " + place + " < N";
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  return NestBuilder("window_of_distances", {{"N", 9}})
      .tensor("q", TensorRole::input, {"N", "4"}, ElementType::f16)
      .tensor("k", TensorRole::input, {"N", "4"}, ElementType::f16)
      .tensor("v", TensorRole::input, {"N", "3"}, ElementType::f16)
      .tensor("s", TensorRole::temporary, {"N", distances})
      .tensor("p", TensorRole::temporary, {"N", distances})
      .tensor("out", TensorRole::output, {"N", "3"})
      .statement("s_init[i, a] : " + there, "s[i, a]", {}, number(0))
      .statement("s[i, a, e] : " + there + " and 0 <= e < 4", "s[i, a]", {"q[i, e]", "k[" + place + ", e]"}, half(0) * half(1),
                 ReductionOp::add)
      .statement("p[i, a] : " + there, "p[i, a]", {"s[i, a]"}, read(0) * number(2))
      .statement("out_init[i, d] : " + element + " and 0 <= d < 3", "out[i, d]", {}, number(0))
      .statement("out[i, d, a] : " + there + " and 0 <= d < 3", "out[i, d]", {"p[" + of_p + "]", "v[" + place + ", d]"},
                 read(0) * half(1), ReductionOp::add)
      .build();
}

}  // namespace nestor::samples
