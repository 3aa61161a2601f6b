// A convolution written with a sum for each of its taps, which are added together.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>
#include <utility>
#include <vector>

namespace nestor::samples {

/// All taps of so many rows and columns.
inline std::vector<std::pair<int, int>> taps_of_box(int rows, int columns) {
  std::vector<std::pair<int, int>> taps;
  for (int s = 0; s < rows; ++s) {
    for (int t = 0; t < columns; ++t) taps.emplace_back(s, t);
  }
  return taps;
}

struct UnrolledForm {
  std::vector<std::pair<int, int>> taps = taps_of_box(2, 3);  ///< rows and columns
  bool edges = true;                                          ///< the image has no zeros around it: sums leave terms out
  ElementType type = ElementType::f16;                        ///< of both operands
  bool one_sum = false;   ///< adds up all taps' products at each point; the image has zeros around it
  std::string other_tap;  ///< an index that the second tap reads in place of its column's constant
};

/// out[y, z, f] = 2 (sum over taps (s, t) and k of x[y + s - 1, z + t - 1, k] w[f, s, t, k]) + b[f], the taps one by one.
inline Nest unrolled_convolution(const UnrolledForm& form = {}) {
  const std::string cell = "[y, z, f]", place = "0 <= y < Y and 0 <= z < Z and 0 <= f < F";
  const bool edges = form.edges && !form.one_sum;
  const std::string more = edges ? "" : " + 2";
  NestBuilder builder("unrolled", {{"Y", 5}, {"Z", 4}, {"F", 3}, {"K", 2}});
  builder.tensor("x", TensorRole::input, {"Y" + more, "Z" + more, "K"}, form.type)
      .tensor("w", TensorRole::input, {"F", "3", "3", "K"}, form.type)
      .tensor("b", TensorRole::input, {"F"})
      .tensor("out", TensorRole::output, {"Y", "Z", "F"});
  const auto operand = [&](int ordinal) {
    return form.type == ElementType::f32 ? read(ordinal) : ScalarExpr::cast(ElementType::f32, read(ordinal, form.type));
  };
  std::vector<std::string> reads{"b[f]"}, terms;
  ScalarExpr added = number(0);
  for (const auto& [s, t] : form.taps) {
    const std::string name = "s" + std::to_string(reads.size()), row = "y + " + std::to_string(edges ? s - 1 : s),
                      column = "z + " + std::to_string(edges ? t - 1 : t);
    const std::string inside = edges ? " and 0 <= " + row + " < Y and 0 <= " + column + " < Z" : "";
    const std::string tap = reads.size() == 2 && !form.other_tap.empty() ? form.other_tap : std::to_string(t);
    const std::vector<std::string> operands{"x[" + row + ", " + column + ", k]",
                                            "w[f, " + std::to_string(s) + ", " + tap + ", k]"};
    if (form.one_sum) {
      const int first = static_cast<int>(terms.size());
      const ScalarExpr product = operand(first) * operand(first + 1);
      terms.insert(terms.end(), operands.begin(), operands.end());
      added = first == 0 ? product : added + product;
      continue;
    }
    builder.tensor(name, TensorRole::temporary, {"Y", "Z", "F"})
        .statement(name + "_init" + cell + " : " + place, name + cell, {}, number(0))
        .statement(name + "[y, z, f, k] : " + place + " and 0 <= k < K" + inside, name + cell, operands, operand(0) * operand(1),
                   ReductionOp::add);
    reads.push_back(name + cell);
    added = added + read(static_cast<int>(reads.size()) - 1);
  }
  if (form.one_sum) {
    builder.tensor("sums", TensorRole::temporary, {"Y", "Z", "F"})
        .statement("init" + cell + " : " + place, "sums" + cell, {}, number(0))
        .statement("sum[y, z, f, k] : " + place + " and 0 <= k < K", "sums" + cell, terms, added, ReductionOp::add);
    reads.push_back("sums" + cell);
    added = read(1);
  }
  return builder.statement("out" + cell + " : " + place, "out" + cell, reads, added * number(2) + read(0)).build();
}

/// out[y, z] = b[y] + sum over taps (s, t) of select(inside, x[y + s - 1, z + t - 1] w[s, t], 0), where each tap has a tensor of zeros and values.
inline Nest filter_by_taps(const std::vector<std::pair<int, int>>& taps = taps_of_box(3, 3)) {
  const std::string place = " : 0 <= y < Y and 0 <= z < Z";
  NestBuilder builder("filter_by_taps", {{"Y", 5}, {"Z", 4}});
  builder.tensor("x", TensorRole::input, {"Y", "Z"})
      .tensor("w", TensorRole::input, {"3", "3"})
      .tensor("b", TensorRole::input, {"Y"})
      .tensor("out", TensorRole::output, {"Y", "Z"});
  std::vector<std::string> reads;
  ScalarExpr added;
  for (const auto& [s, t] : taps) {
    const std::string name = "p" + std::to_string(reads.size()), row = "y + " + std::to_string(s - 1),
                      column = "z + " + std::to_string(t - 1);
    builder.tensor(name, TensorRole::temporary, {"Y", "Z"});
    if (s != 1 || t != 1) builder.statement(name + "_zero[y, z]" + place, name + "[y, z]", {}, number(0));
    builder.statement(name + "[y, z]" + place + " and 0 <= " + row + " < Y and 0 <= " + column + " < Z", name + "[y, z]",
                      {"x[" + row + ", " + column + "]", "w[" + std::to_string(s) + ", " + std::to_string(t) + "]"},
                      read(0) * read(1));
    const ScalarExpr term = read(static_cast<int>(reads.size()));
    added = reads.empty() ? term : added + term;
    reads.push_back(name + "[y, z]");
  }
  reads.push_back("b[y]");
  added = added + read(static_cast<int>(reads.size()) - 1);
  return builder.statement("out[y, z]" + place, "out[y, z]", reads, added).build();
}

}  // namespace nestor::samples
