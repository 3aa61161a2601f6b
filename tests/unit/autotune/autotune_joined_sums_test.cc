// Gates of a recurrent cell: sums over two dims that are added together. One kernel on tensor cores has all products, over operands that lie
// side by side in copies.
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/operand_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace nestor {
namespace {

using namespace samples;

TEST(JoinedSums, GuessesOfEachKindAreRight) {
  for (const bool late : {false, true}) {
    const Nest nest = recurrent_gates(late);
    const Sizes sizes = complete_sizes(nest, {{"M", 4096}, {"N", 1024}, {"K", 1024}, {"P", 1024}});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
    for (const Point& point : space->defaults()) {
      const NamedValues values = named_values(*space, point);
      if (value_or(values, "warpgroups", 0) == 0 || value_or(values, "rule.join_sums", 0) == 0) continue;
      if (!seen.emplace(value_or(values, "cluster", 1), value_or(values, "persistent", 0), value_or(values, "ping_pong_tiles", 0))
               .second)
        continue;
      const Candidate candidate = space->candidate(point);
      ASSERT_EQ(candidate.infeasible, "");
      const Schedule schedule = schedules.replay(candidate.steps);
      const TileProgram program = build_tile_program(schedule);
      EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
      const CompiledNvptx compiled = compile_nvptx(program, {});
      const auto& kernels = compiled.plans->kernels;
      EXPECT_EQ(
          std::count_if(kernels.begin(), kernels.end(), [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }),
          1);
      EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(schedules.base({})),
                                      {{"M", 70}, {"N", 72}, {"K", 37}, {"P", 30}}, {.tolerance = 4e-3}, {1}),
                "")
          << ::testing::PrintToString(values);
    }
    EXPECT_GE(seen.size(), 3U);
  }
}

TEST(JoinedSums, CopiesOfWeightsForFewRowsAreNotGuessedFirst) {
  const auto first_joins = [](std::int64_t rows) {
    const Nest nest = recurrent_gates();
    const Sizes sizes = complete_sizes(nest, {{"M", rows}, {"N", 1024}, {"K", 1024}, {"P", 1024}});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
    return value_or(named_values(*space, space->defaults().front()), "rule.join_sums", 0) == 1;
  };
  EXPECT_TRUE(first_joins(4096));
  EXPECT_FALSE(first_joins(16));
}

}  // namespace
}  // namespace nestor
