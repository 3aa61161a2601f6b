// Recurrences whose states each thread keeps: the guesses that fold them are one kernel, right in the emulator, and found before idle ones.
#include "autotune/planned_guesses.h"
#include "autotune/target/target.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/sample_nests.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor::testing {
namespace {

using namespace samples;

/// A mean and a variance for each pixel, which frames move: m[t + 1, i] = m + (x - m) / 8, v[t + 1, i] = v + ((x - m)^2 - v) / 8.
Nest running_moments(std::int64_t frames, std::int64_t pixels) {
  const std::string row = "0 <= i < N", step = "0 <= t < T and " + row;
  const ScalarExpr gap = read(1) - read(0);
  return NestBuilder("moments", {{"T", frames}, {"N", pixels}})
      .tensor("x", TensorRole::input, {"T", "N"})
      .tensor("m", TensorRole::temporary, {"T + 1", "N"})
      .tensor("v", TensorRole::temporary, {"T + 1", "N"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("m_first[t, i] : t = 0 and " + row, "m[t, i]", {}, number(0.5))
      .statement("v_first[t, i] : t = 0 and " + row, "v[t, i]", {}, number(1))
      .statement("v_next[t, stage, i] : stage = 0 and " + step, "v[t + 1, i]", {"m[t, i]", "x[t, i]", "v[t, i]"},
                 read(2) + number(0.125) * (gap * gap - read(2)))
      .statement("m_next[t, stage, i] : stage = 1 and " + step, "m[t + 1, i]", {"m[t, i]", "x[t, i]"},
                 read(0) + number(0.125) * gap)
      .join_last()
      .statement("out[i] : " + row, "out[i]", {"m[T, i]", "v[T, i]"}, read(0) * read(1))
      .build();
}

bool folds(const Space& space, const Point& point) {
  const auto values = named_values(space, point);
  const auto found = values.find("rule.fold_storage");
  return found != values.end() && found->second != 0;
}

TEST(FoldedStates, AreOneKernelThatIsRight) {
  const Nest free = running_moments(5, 300);
  SearchedProblem problem(fix_sizes(free, {{"T", 5}}), {});
  int folded = 0, one = 0;
  for (const Point& point : problem.space->defaults()) {
    if (!folds(*problem.space, point) || folded == 4) continue;
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty()) continue;
    try {
      const auto plans = plan_kernels(target_program(problem.schedules.replay(candidate.steps), true), {.sm = 90});
      one += plans->kernels.size() == 1 ? 1 : 0;
    } catch (const UserError&) {  // copies ahead have no room
      continue;
    }
    ++folded;
    for (const std::int64_t pixels : {1, 129, 300}) EXPECT_EQ(problem.difference(point, {{"N", pixels}}), "");
  }
  EXPECT_EQ(folded, 4);
  EXPECT_GT(one, 0);
}

/// Paths that a step moves by a force of its own, with a cost that starts from 0, and the sum of what each world's paths have cost.
Nest rolled_out_paths() {
  const std::string path = "0 <= w < W and 0 <= i < N", step = "0 <= t < T and " + path;
  return NestBuilder("paths", {{"T", 64}, {"W", 64}, {"N", 2048}})
      .tensor("x", TensorRole::input, {"T", "W", "N"})
      .tensor("place", TensorRole::temporary, {"T + 1", "W", "N"})
      .tensor("force", TensorRole::temporary, {"T", "W", "N"})
      .tensor("cost", TensorRole::temporary, {"W", "N"})
      .tensor("out", TensorRole::output, {"W"})
      .statement("first[t, w, i] : t = 0 and " + path, "place[t, w, i]", {}, number(0.5))
      .statement("none[w, i] : " + path, "cost[w, i]", {}, number(0))
      .statement("force[t, stage, w, i] : stage = 0 and " + step, "force[t, w, i]", {"x[t, w, i]"}, read(0) * read(0))
      .statement("next[t, stage, w, i] : stage = 1 and " + step, "place[t + 1, w, i]", {"place[t, w, i]", "force[t, w, i]"},
                 number(0.75) * read(0) + number(0.125) * read(1))
      .join_last()
      .statement("spent[t, stage, w, i] : stage = 2 and " + step, "cost[w, i]", {"cost[w, i]", "place[t + 1, w, i]"},
                 read(0) + read(1) * read(1))
      .join_last()
      .statement("out_first[w] : 0 <= w < W", "out[w]", {}, number(0))
      .statement("out[w, i] : " + path, "out[w]", {"cost[w, i]"}, read(0), ReductionOp::add)
      .build();
}

TEST(FoldedStates, StartInTheKernelOfTheirSteps) {
  SearchedProblem problem(fix_sizes(rolled_out_paths(), {{"T", 64}}), {});
  const std::vector<Point> guesses = problem.space->defaults();
  const auto planned = std::find_if(guesses.begin(), guesses.end(), [&](const Point& point) {
    return folds(*problem.space, point) && problem.space->candidate(point).infeasible.empty();
  });
  ASSERT_NE(planned, guesses.end());
  const Candidate candidate = problem.space->candidate(*planned);
  const auto plans = plan_kernels(target_program(problem.schedules.replay(candidate.steps), true), {.sm = 90});
  EXPECT_LE(plans->kernels.size(), 2U) << "the steps with what they start from, and the sum";
  const auto for_all_steps = std::count_if(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) {
    return step.name == "fission" && step.args.front() == "force.t";
  });
  EXPECT_EQ(for_all_steps, 0) << "a step's force stays in the step";
  for (const std::int64_t paths : {1, 300}) EXPECT_EQ(problem.difference(*planned, {{"W", 2}, {"N", paths}}), "");
}

TEST(FoldedStates, GuessesWithFarLessWorkGoFirst) {
  const Nest nest = fix_sizes(running_moments(64, 1 << 20), {{"T", 64}});
  const SpaceLimits limits = gpu_space_limits(90, 227 << 10, 132);
  BaseSchedules schedules(nest);
  const Sizes sizes{{"T", 64}, {"N", 1 << 20}};
  const auto space = make_nest_space(schedules, sizes, limits);
  std::vector<Point> guesses = space->defaults();
  ASSERT_GT(guesses.size(), 2U);
  // The last guess is right for any nest, and slow: from there on the others are much better.
  std::rotate(guesses.begin(), guesses.end() - 1, guesses.end());
  const std::vector<Point> better = much_better_guesses(*space, schedules, sizes, limits, guesses);
  ASSERT_FALSE(better.empty());
  EXPECT_LE(better.size(), 4U);
  EXPECT_NE(better.front(), guesses.front());
  std::vector<Point> best{better.front()};
  best.insert(best.end(), better.begin(), better.end());
  EXPECT_TRUE(much_better_guesses(*space, schedules, sizes, limits, best).empty()) << "none is much better than the best";
}

}  // namespace
}  // namespace nestor::testing
