// Recurrences whose steps have sums in them, on GPUs: statements have loops of their own, in a block for each sequence or in launches.
#include "autotune/space/distribution.h"
#include "autotune/space/gpu/known_sizes.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/error.h"
#include "support/nests/recurrence_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace nestor {
namespace {

using testing::count_steps;
using testing::SearchedProblem;

std::string plan_of(SearchedProblem& problem, const Candidate& candidate) {
  return describe_kernels(build_tile_program(problem.schedules.replay(candidate.steps)), {.sm = 90});
}

TEST(GpuSteps, ABlockGoesThroughTheStepsOfASequenceFirst) {
  SearchedProblem problem(fix_sizes(samples::batched_states(96, 40, 128), {{"width", 128}}), {{"width", 128}});
  const Point point = problem.space->defaults().front();
  const Candidate first = problem.space->candidate(point);
  EXPECT_GT(count_steps(first, "fission"), 0) << "statements take turns at each point";
  const std::string plan = plan_of(problem, first);
  EXPECT_NE(plan.find("nestor_batched_states__1:"), std::string::npos) << plan;
  EXPECT_EQ(plan.find("nestor_batched_states__2:"), std::string::npos)
      << "one kernel for the first state, and one for all steps\n"
      << plan;
  for (const std::int64_t batch : {1, 5}) {
    for (const std::int64_t times : {1, 2, 9}) {
      const Sizes sizes{{"batch", batch}, {"times", times}, {"width", 128}};
      EXPECT_EQ(problem.difference(point, sizes), "") << batch << " " << times;
    }
  }
}

/// More threads than a step has elements would compute the same, and wait for each other.
TEST(GpuSteps, AWarpGoesThroughStepsOfAsManyElements) {
  for (const auto& [rows, threads] : {std::pair(8, 32), std::pair(32, 256)}) {
    const Sizes fixed{{"rows", rows}, {"columns", 8}};
    SearchedProblem problem(fix_sizes(samples::corrected_matrix(64, 40, rows, 8), fixed), fixed);
    const Point point = problem.space->defaults().front();
    const std::string plan = plan_of(problem, problem.space->candidate(point));
    EXPECT_NE(plan.find("corrected__1: " + std::to_string(threads) + " threads"), std::string::npos) << plan;
    EXPECT_EQ(problem.difference(point, {{"batch", 3}, {"times", 4}, {"rows", rows}, {"columns", 8}}), "") << rows;
  }
}

/// far[t + 1, r] = min(far[t, r] + the least of |far[t, r] - ball[b]|, 20): rays that go from step to step, none of which is work for a block.
Nest marching_rays(std::int64_t rays, std::int64_t balls, std::int64_t steps) {
  using namespace samples;
  const std::string step = "0 <= t < T and 0 <= r < R";
  const ScalarExpr apart = read(0) - read(1);
  return NestBuilder("marching_rays", {{"R", rays}, {"B", balls}, {"T", steps}})
      .tensor("start", TensorRole::input, {"R"})
      .tensor("ball", TensorRole::input, {"B"})
      .tensor("near", TensorRole::temporary, {"T", "R"})
      .tensor("far", TensorRole::output, {"T + 1", "R"})
      .statement("begin[t, r] : t = 0 and 0 <= r < R", "far[t, r]", {"start[r]"}, read(0))
      .statement("first[t, s, r, b] : " + step + " and s = 0 and b = 0", "near[t, r]", {},
                 number(std::numeric_limits<double>::infinity()))
      .statement("near[t, s, r, b] : " + step + " and s = 1 and 0 <= b < B", "near[t, r]", {"far[t, r]", "ball[b]"},
                 ScalarExpr::make(ScalarOp::abs, {apart}), ReductionOp::min)
      .join_last()
      .statement("go[t, s, r, b] : " + step + " and s = 2 and b = 0", "far[t + 1, r]", {"far[t, r]", "near[t, r]"},
                 ScalarExpr::make(ScalarOp::min, {read(0) + read(1), number(20)}))
      .join_last()
      .build();
}

TEST(GpuSteps, ThreadsShareManyShortSequences) {
  SearchedProblem many(marching_rays(131072, 40, 9), {}), few(marching_rays(96, 4096, 9), {});
  std::set<std::string> plans;
  for (std::size_t k = 0; k < 3; ++k) {
    const Point point = many.space->defaults().at(k);
    const Candidate candidate = many.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    plans.insert(plan_of(many, candidate));
    for (const std::int64_t rays : {1, 127, 128, 700}) {
      for (const std::int64_t steps : {1, 2, 5})
        EXPECT_EQ(many.difference(point, {{"R", rays}, {"B", 3 + rays % 5}, {"T", steps}}), "")
            << k << " " << rays << " " << steps;
    }
  }
  EXPECT_GE(plans.size(), 3U) << "128, 512 and 256 of them a block";
  const auto first_plan = [](SearchedProblem& problem) {
    return plan_of(problem, problem.space->candidate(problem.space->defaults().front()));
  };
  EXPECT_NE(first_plan(many).find("(R - 1) / 128 + 1, 0) blocks"), std::string::npos) << first_plan(many);
  EXPECT_EQ(first_plan(few).find("(R - 1) / 128 + 1, 0) blocks"), std::string::npos) << "a long step keeps a block busy";
}

/// Steps of a few elements, and sequences for no more than some warps of each multiprocessor: a lane has a sequence, also where another
/// group has one statement a step.
TEST(GpuSteps, LanesHaveSequencesOfFewElements) {
  SearchedProblem problem(samples::eliminated_systems(256, 128), {});
  const std::string first = plan_of(problem, problem.space->candidate(problem.space->defaults().front()));
  EXPECT_NE(first.find("  for last_t in ["), std::string::npos) << "a launch for each step\n" << first;
  EXPECT_EQ(first.find("barrier"), std::string::npos) << "a step needs its own columns of the step before\n" << first;
  int right = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    std::string steps;
    for (const Step& step : candidate.steps) steps += describe(step) + "\n";
    if (!candidate.infeasible.empty() || steps.find("reorder(pivot.r_o, pivot.t, pivot.s, pivot.r_i)") == std::string::npos)
      continue;
    if (steps.find("split(pivot.r, 32, ") == std::string::npos) continue;
    EXPECT_NE(steps.find("reorder(back.r_o, back.r_i, back.t)"), std::string::npos) << "a launch for each step\n" << steps;
    for (const std::int64_t systems : {1, 31, 70}) {
      for (const std::int64_t unknowns : {1, 2, 5})
        EXPECT_EQ(problem.difference(point, {{"R", systems}, {"T", unknowns}}), "") << systems << " " << unknowns;
    }
    ++right;
  }
  EXPECT_GE(right, 1);
}

/// Every guess that has a plan, of recurrences with an axis of independent sequences, without one, and with columns at the place of rows.
TEST(GpuSteps, GuessesAreRightAtRaggedSizes) {
  struct Case {
    Nest nest;
    Sizes fixed, small;
  };
  const std::vector<Case> cases{
      {samples::batched_states(96, 40, 33), {{"width", 33}}, {{"batch", 5}, {"times", 4}, {"width", 33}}},
      {samples::states(40, 300), {{"width", 300}}, {{"times", 4}, {"width", 300}}},
      {samples::corrected_matrix(64, 40, 32, 64),
       {{"rows", 32}, {"columns", 64}},
       {{"batch", 3}, {"times", 4}, {"rows", 32}, {"columns", 64}}},
  };
  for (const Case& each : cases) {
    SearchedProblem problem(fix_sizes(each.nest, each.fixed), each.fixed);
    std::set<std::string> seen;
    int right = 0, launches = 0, tiles = 0;
    for (const Point& point : problem.space->defaults()) {
      const Candidate candidate = problem.space->candidate(point);
      if (!candidate.infeasible.empty() || count_steps(candidate, "fission") == 0) continue;
      std::string plan;
      try {
        plan = plan_of(problem, candidate);
      } catch (const UserError&) {  // a block has no room for what the step keeps
        continue;
      }
      if (!seen.insert(plan).second) continue;
      EXPECT_EQ(problem.difference(point, each.small), "") << plan;
      ++right;
      launches += count_steps(candidate, "gpu_blocks") < 2 ? 1 : 0;
      tiles += count_steps(candidate, "split") > 0 ? 1 : 0;
    }
    EXPECT_GE(right, 3) << each.nest.op;
    EXPECT_GT(launches, 0) << each.nest.op;
    EXPECT_GT(tiles, 0) << each.nest.op;
  }
}

/// The size of a state, of which each step sums over all elements; not how many sequences or steps there are.
TEST(GpuSteps, SizesOfWhatAStepKeepsAreKnown) {
  const auto sizes_of = [](const Nest& nest) { return sizes_of_short_rows(nest, complete_sizes(nest, {})); };
  EXPECT_EQ(sizes_of(samples::batched_states(96, 40, 512)), std::set<std::string>{"width"});
  EXPECT_EQ(sizes_of(samples::batched_states(96, 40, 5000)), std::set<std::string>{}) << "a block has no room for them";
}

TEST(GpuSteps, NestsWithoutSharedStepsKeepTheirForms) {
  for (const Nest& nest : {samples::matmul(), samples::row_norm(), samples::stencil2d(3, 17, 18)}) {
    SearchedProblem problem(nest, {});
    for (const Point& point : problem.space->defaults())
      EXPECT_EQ(count_steps(problem.space->candidate(point), "fission"), 0) << nest.op;
  }
}

}  // namespace
}  // namespace nestor
