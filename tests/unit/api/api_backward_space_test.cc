// Backward passes of norms: at every type and width that they are tuned at, the first candidate for a GPU takes dx and the sums
// over rows in one pass over memory.
#include "api/operators.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

struct BackwardProblem {
  std::string op, variant;
  std::int64_t width;
};

std::ostream& operator<<(std::ostream& out, const BackwardProblem& problem) {
  return out << problem.op << " " << problem.variant << " " << problem.width;
}

class BackwardSpace : public ::testing::TestWithParam<BackwardProblem> {};

TEST_P(BackwardSpace, TheFirstCandidateReadsEachRowOnce) {
  const Nest nest = load_operator(GetParam().op, GetParam().variant);
  const Sizes sizes = complete_sizes(nest, {{"rows", 32768}, {"width", GetParam().width}});
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, 132));
  const Candidate first = space->candidate(space->defaults().front());
  ASSERT_EQ(first.infeasible, "");
  const Schedule schedule = schedules.replay(first.steps);
  // One loop over a part's rows holds dx and every sum.
  const std::vector<std::string> loops = schedule.loops_of("dx");
  ASSERT_GE(loops.size(), 2U);
  for (const char* sum : {"dweight_sum_part", "dbias_sum_part"}) {
    const auto& statements = schedule.nest().statements;
    if (std::none_of(statements.begin(), statements.end(), [&](const Statement& s) { return s.name == sum; })) continue;
    const std::vector<std::string> beside = schedule.loops_of(sum);
    ASSERT_GE(beside.size(), 2U);
    EXPECT_TRUE(std::equal(loops.begin(), loops.begin() + 2, beside.begin())) << sum << "\n" << schedule.str();
  }
  EXPECT_EQ(compile_nvptx(build_tile_program(schedule), {}).kernel.recipe.launches.size(), 2U) << "a pass, and one that combines";
}

std::vector<BackwardProblem> backward_problems() {
  std::vector<BackwardProblem> all;
  for (const char* op : {"layernorm_backward", "rmsnorm_backward"}) {
    for (const char* variant : {"f32", "f16", "bf16"}) {
      for (const std::int64_t width : {1024, 4096, 8192}) all.push_back({op, variant, width});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(all, BackwardSpace, ::testing::ValuesIn(backward_problems()));

}  // namespace
}  // namespace nestor
