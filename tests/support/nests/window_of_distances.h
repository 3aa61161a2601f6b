// Rows that are multiplied with those before them, by their distance; elements that are added up.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>
#include <vector>

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

/// out[b, i] = sum (or `op`) over all distances a of x[b, place] + 1, where the place is one of the N elements of the row, and a < `distances`;
/// `weighted`: of x[b, place] x[b, a].
inline Nest running_sum_of_distances(const std::string& place = "i - a", ReductionOp op = ReductionOp::add,
                                     const std::string& distances = "N", bool weighted = false) {
  const std::string row = "0 <= b < B and 0 <= i < N", element = "x[b, " + place + "]";
  return NestBuilder("running_sum_of_distances", {{"B", 3}, {"N", 64}})
      .tensor("x", TensorRole::input, {"B", "N"})
      .tensor("out", TensorRole::output, {"B", "N"})
      .statement("out_init[b, i] : " + row, "out[b, i]", {}, number(neutral_element(op, ElementType::f32)))
      .statement("out[b, i, a] : " + row + " and 0 <= a < " + distances + " and 0 <= " + place + " < N", "out[b, i]",
                 weighted ? std::vector<std::string>{element, "x[b, a]"} : std::vector<std::string>{element},
                 weighted ? read(0) * read(1) : read(0) + number(1), op)
      .build();
}

}  // namespace nestor::samples
