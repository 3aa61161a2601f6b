// A recurrence of each row, whose steps sum up the row: the first guesses have it in one kernel with what is before and behind it.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/nest_runs.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

/// A bisection for the threshold above which a row's squares add up to 1, in four turns, and the row above it.
Nest thresholds() {
  const std::string row = " : 0 <= i < R", all = row + " and 0 <= j < K", turn = row + " and 0 <= t < 4";
  const auto half = apply(ScalarOp::exp2, number(-1) - ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)));
  const auto above = [](const ScalarExpr& value) { return ScalarExpr::make(ScalarOp::max, {value, number(0)}); };
  const ScalarExpr term = above(read(0) - read(1) - half), part = above(read(0) - read(1));
  const ScalarExpr higher = ScalarExpr::make(ScalarOp::le, {number(1), read(0)});
  return NestBuilder("thresholds", {{"R", 8192}, {"K", 1024}})
      .tensor("x", TensorRole::input, {"R", "K"})
      .tensor("top", TensorRole::temporary, {"R"})
      .tensor("low", TensorRole::temporary, {"5", "R"})
      .tensor("mass", TensorRole::temporary, {"4", "R"})
      .tensor("out", TensorRole::output, {"R", "K"})
      .statement("top_init[i]" + row, "top[i]", {}, number(-infinity()))
      .statement("top_max[i, j]" + all, "top[i]", {"x[i, j]"}, read(0), ReductionOp::max)
      .statement("low[i]" + row, "low[0, i]", {"top[i]"}, read(0) - number(1))
      .statement("start[t, stage, i, j]" + turn + " and stage = 0 and j = 0", "mass[t, i]", {}, number(0))
      .statement("mass[t, stage, i, j]" + turn + " and stage = 0 and 0 <= j < K", "mass[t, i]", {"x[i, j]", "low[t, i]"},
                 term * term, ReductionOp::add, {"t"})
      .join_last()
      .statement("next[t, stage, i, j]" + turn + " and stage = 1 and j = 0", "low[t + 1, i]", {"mass[t, i]", "low[t, i]"},
                 ScalarExpr::make(ScalarOp::select, {higher, read(1) + half, read(1)}), std::nullopt, {"t"})
      .join_last()
      .statement("out[i, j]" + all, "out[i, j]", {"x[i, j]", "low[4, i]"}, part * part)
      .build();
}

TEST(RowSequences, OneKernelOfSmallBlocksComputesTheDefinition) {
  const Nest nest = thresholds();
  testing::SpaceGuesses guesses(nest, {{"R", 8192}, {"K", 1024}});
  const TileProgram program = guesses.program(0);
  EXPECT_EQ(value_or(guesses.values(0), "threads", 0), 32) << "a warp has a row";
  EXPECT_EQ(compile_nvptx(program, {}).plans->kernels.size(), 1U);
  const auto steps = guesses.space->candidate(guesses.points.at(0)).steps;
  const auto is_cut = [](const Step& step) { return step.name == "fission" && step.args.at(1) == "mass"; };
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), is_cut)) << "threads share the sum of a turn";
  testing::NestInputs inputs{{{"R", 3}, {"K", 41}}, {}, {}};
  for (int k = 0; k < 3 * 41; ++k) inputs.tensors["x"].push_back(0.25 * (k * 37 % 23) - 0.5 * (k % 5));
  const auto expected = testing::run_definition(nest, inputs), found = testing::run_emulated(program, inputs);
  for (std::size_t k = 0; k < expected.at("out").size(); ++k) EXPECT_NEAR(found.at("out")[k], expected.at("out")[k], 1e-5) << k;
}

TEST(RowSequences, OfFewRowsABlockHasOne) {
  testing::SpaceGuesses guesses(thresholds(), {{"R", 64}, {"K", 1024}});
  EXPECT_NE(value_or(guesses.values(0), "threads", 0), 32);
}

}  // namespace
}  // namespace nestor
