// Running sums that other sums read at other places, as gradients of what rays see are: a block keeps whole rows of them.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/prefix_nests.h"
#include "support/nests/tensor_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace nestor {
namespace {

using namespace samples;
using testing::count_steps;
using testing::SearchedProblem;

/// clear = exp(- sum of x before), behind = sum of clear y behind; out = clear - behind, colour[.., c] = clear z[.., c].
Nest seen_and_hidden() {
  const std::string row = "0 <= r < R", place = row + " and 0 <= s < 192", at = "[r, s]";
  return NestBuilder("seen_and_hidden", {{"R", 16384}})
      .tensor("x", TensorRole::input, {"R", "192"})
      .tensor("y", TensorRole::input, {"R", "192"})
      .tensor("z", TensorRole::input, {"R", "3"})
      .tensor("before", TensorRole::temporary, {"R", "192"})
      .tensor("clear", TensorRole::temporary, {"R", "192"})
      .tensor("behind", TensorRole::temporary, {"R", "192"})
      .tensor("out", TensorRole::output, {"R", "192"})
      .tensor("colour", TensorRole::output, {"R", "192", "3"})
      .statement("before_init" + at + " : " + place, "before" + at, {}, number(0))
      .statement("before[r, s, l] : " + place + " and 0 <= l < s", "before" + at, {"x[r, l]"}, read(0) * number(0.01),
                 ReductionOp::add)
      .statement("clear" + at + " : " + place, "clear" + at, {"before" + at}, apply(ScalarOp::exp, number(0) - read(0)))
      .statement("behind_init" + at + " : " + place, "behind" + at, {}, number(0))
      .statement("behind[r, s, l] : " + place + " and s < l < 192", "behind" + at, {"clear[r, l]", "y[r, l]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("out" + at + " : " + place, "out" + at, {"clear" + at, "behind" + at}, read(0) - read(1))
      .statement("colour[r, s, c] : " + place + " and 0 <= c < 3", "colour[r, s, c]", {"clear" + at, "z[r, c]"},
                 read(0) * read(1))
      .build();
}

TEST(RunningSums, OneKernelKeepsRowsThatOtherSumsReadBehind) {
  SearchedProblem problem(seen_and_hidden(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "gpu_threads"), 1) << "one kernel";
  EXPECT_EQ(problem.difference(first, {{"R", 19}}), "");
}

TEST(RunningSums, ThreadsShareRowsAsRunningSumsNeedThem) {
  SearchedProblem problem(seen_and_hidden(), {});
  const Candidate candidate = problem.space->candidate(problem.space->defaults().front());
  const TileProgram program = build_tile_program(problem.schedules.replay(candidate.steps));
  const auto plans = plan_kernels(program, {});
  ASSERT_EQ(plans->kernels.size(), 1U);
  int sums = 0;
  for (const nvptx::BlockOp& op : plans->kernels.front().bodies.front().ops) {
    if (!op.prefix) continue;
    ++sums;
    EXPECT_EQ(op.layout.lanes, 32) << op.op.name << ": the last result has 192 times as many rows";
  }
  EXPECT_EQ(sums, 2);
}

/// Each row is read once: what is before and behind each place meets in registers.
TEST(RunningSums, LargestOfAllOthersAreTwoPasses) {
  SearchedProblem problem(largest_others({.columns = "192"}), {{"R", 16384}});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "gpu_threads"), 1) << "one kernel";
  const TileProgram program = build_tile_program(problem.schedules.replay(candidate.steps));
  const auto plans = plan_kernels(program, {});
  const std::vector<nvptx::BlockOp>& ops = plans->kernels.front().bodies.front().ops;
  EXPECT_EQ(std::count_if(ops.begin(), ops.end(), [](const nvptx::BlockOp& op) { return op.prefix.has_value(); }), 2);
  EXPECT_EQ(problem.difference(first, {{"R", 19}}), "");
}

}  // namespace
}  // namespace nestor
