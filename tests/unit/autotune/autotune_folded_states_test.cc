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
