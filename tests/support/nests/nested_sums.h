// Sums of products that are added up by another sum.
#pragma once

#include "poly/isl/isl_tools.h"
#include "support/nests/sample_nests.h"

#include <string>
#include <vector>

namespace nestor::samples {

/// tap[m, t, o] = sum over k of x[m + t - 1, k] w[t, o, k] at three places around m that a sequence of M has, and out[m, o] = sum over t of tap,
/// or, `stored`, of a copy of it. `read_at`: which tap is read; `start`: what taps start from.
inline Nest nested_sums(bool stored = false, const std::string& read_at = "t", const std::string& start = "0") {
  const std::string tap = "0 <= m < M and 0 <= o < O and 0 <= t < 3", seen = tap + " and 1 <= m + t <= M";
  const std::string tensor = stored ? "kept" : "tap", element = tensor + "[m, " + read_at + ", o]";
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  NestBuilder nest("nested_sums", {{"M", 5}, {"O", 4}, {"K", 3}});
  nest.tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"3", "O", "K"}, ElementType::f16)
      .tensor("tap", TensorRole::temporary, {"M", "3", "O"})
      .tensor("out", TensorRole::output, {"M", "O"})
      .statement("tap_init[m, t, o] : " + tap, "tap[m, t, o]", {}, number(std::stod(start)))
      .statement("tap[m, t, o, k] : " + seen + " and 0 <= k < K", "tap[m, t, o]", {"x[m + t - 1, k]", "w[t, o, k]"},
                 half(0) * half(1), ReductionOp::add);
  if (stored)
    nest.tensor("kept", TensorRole::temporary, {"M", "3", "O"})
        .statement("kept[m, t, o] : " + tap, "kept[m, t, o]", {"tap[m, t, o]"}, read(0));
  return nest.statement("out_init[m, o] : 0 <= m < M and 0 <= o < O", "out[m, o]", {}, number(0))
      .statement("out[m, o, t] : " + tap, "out[m, o]", {element}, read(0), ReductionOp::add)
      .build();
}

/// out[m, o] = sum over t < 3 of select(1 <= m + t <= M, tap_t[m, o], 0) with tap_t[m, o] = sum over k of x[m + t - 1, k] w[t, o, k], each a sum of its
/// own with terms at places that a sequence of M has. `seen`: of places m + t, where the select takes the sum.
inline Nest taps_at_edges(int seen = 1) {
  const std::string element = "0 <= m < M and 0 <= o < O";
  const auto half = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  NestBuilder nest("taps_at_edges", {{"M", 5}, {"O", 4}, {"K", 3}});
  nest.tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"3", "O", "K"}, ElementType::f16)
      .tensor("out", TensorRole::output, {"M", "O"});
  std::vector<std::string> reads;
  ScalarExpr all = number(0);
  for (int t = 0; t < 3; ++t) {
    const std::string tap = "tap" + std::to_string(t), place = "m + " + std::to_string(t);
    nest.tensor(tap, TensorRole::temporary, {"M", "O"})
        .statement(tap + "_init[m, o] : " + element, tap + "[m, o]", {}, number(0))
        .statement(tap + "[m, o, k] : " + element + " and 0 <= k < K and 1 <= " + place + " <= M", tap + "[m, o]",
                   {"x[" + place + " - 1, k]", "w[" + std::to_string(t) + ", o, k]"}, half(0) * half(1), ReductionOp::add);
    const ScalarExpr index = ScalarExpr::index(t), low = ScalarExpr::constant(seen, ElementType::i32),
                     inside =
                         ScalarExpr::make(ScalarOp::logical_and, {ScalarExpr::make(ScalarOp::le, {low, index}),
                                                                  ScalarExpr::make(ScalarOp::le, {index, ScalarExpr::index(3)})}),
                     term = ScalarExpr::make(ScalarOp::select, {inside, read(t), number(0)});
    all = t == 0 ? term : all + term;
    reads.push_back(tap + "[m, o]");
  }
  Nest built = nest.statement("out[m, o] : " + element, "out[m, o]", reads, read(0) + read(1) + read(2)).build();
  built.statements.back().value = all;
  for (const char* index : {"m", "m + 1", "m + 2", "M"})
    built.statements.back().indices.push_back(
        parse_pw_aff(std::string("[M, O, K] -> { out[m, o] -> [(") + index + ")] }", "test"));
  return built;
}

}  // namespace nestor::samples
