// Long sums of columns beside work of as many points that sums up few terms: the first guess cuts the long ones into parts.
#include "support/nests/nest_runs.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

/// What a filter of `taps` taps makes of each channel c, and its gradient: a sum over all times t for each tap.
Nest filter_and_gradient(int taps) {
  const std::string all = " : 0 <= t < T and 0 <= c < C", ahead = std::to_string(taps - 1);
  const std::string tap = " and 0 <= k < " + std::to_string(taps), result = " : 0 <= c < C" + tap;
  return NestBuilder("filter_and_gradient", {{"T", 16384}, {"C", 2048}})
      .tensor("x", TensorRole::input, {"T + " + ahead, "C"})
      .tensor("w", TensorRole::input, {"C", std::to_string(taps)})
      .tensor("g", TensorRole::input, {"T", "C"})
      .tensor("y", TensorRole::output, {"T", "C"})
      .tensor("d", TensorRole::output, {"C", std::to_string(taps)})
      .statement("y_init[t, c]" + all, "y[t, c]", {}, number(0))
      .statement("y[t, c, k]" + all + tap, "y[t, c]", {"x[t + k, c]", "w[c, k]"}, read(0) * read(1), ReductionOp::add)
      .statement("d_init[c, k]" + result, "d[c, k]", {}, number(0))
      .statement("d[c, k, t]" + result + " and 0 <= t < T", "d[c, k]", {"g[t, c]", "x[t + k, c]"}, read(0) * read(1),
                 ReductionOp::add)
      .build();
}

TEST(LongColumnSums, AreCutIntoPartsFirst) {
  const Nest nest = filter_and_gradient(4);
  testing::SpaceGuesses guesses(nest, {{"T", 16384}, {"C", 2048}});
  const auto is_possible = [&](const Point& point) { return guesses.space->candidate(point).infeasible.empty(); };
  const auto first = std::find_if(guesses.points.begin(), guesses.points.end(), is_possible);
  ASSERT_NE(first, guesses.points.end());
  const auto steps = guesses.space->candidate(*first).steps;
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const Step& step) {
    return step.name == "apply_rule" && step.args.at(0) == "split_reduction" && step.args.at(1) == "d";
  }));
  testing::NestInputs inputs{{{"T", 70}, {"C", 5}}, {}, {}};
  for (int k = 0; k < 73 * 5; ++k) inputs.tensors["x"].push_back(0.25 * (k * 37 % 23) - k % 5);
  for (int k = 0; k < 70 * 5; ++k) inputs.tensors["g"].push_back(0.5 * (k * 11 % 7) - k % 3);
  for (int k = 0; k < 4 * 5; ++k) inputs.tensors["w"].push_back(k % 3 - 0.5);
  const auto expected = testing::run_definition(nest, inputs);
  const auto found = testing::run_emulated(guesses.program(*first), inputs);
  for (const char* name : {"y", "d"}) {
    for (std::size_t k = 0; k < expected.at(name).size(); ++k)
      EXPECT_NEAR(found.at(name)[k], expected.at(name)[k], 1e-3) << name << " " << k;
  }
}

}  // namespace
}  // namespace nestor
