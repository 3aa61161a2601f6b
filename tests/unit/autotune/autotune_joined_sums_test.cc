// Gates of a recurrent cell: sums over two dims that are added together. One kernel on tensor cores has all products, over operands that lie
// side by side in copies.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/added_convolutions.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace nestor {
namespace {

using namespace samples;

/// Of guesses on tensor cores that join sums, one of each kind is emulated, up to `most`: all have one such kernel, and are right at `ragged`
/// sizes. Returns how many kinds there are.
std::size_t check_guesses(const Nest& nest, const Sizes& sizes, const Sizes& ragged, std::size_t most = 8) {
  const TrialProblem problem = trial_problem(nest, sizes, false, sizes_known_to_products(nest, sizes));
  BaseSchedules schedules(problem.start);
  const auto space = make_nest_space(schedules, problem.sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> seen;
  const TileProgram meaning = build_tile_program(schedules.base({}));
  for (const Point& point : space->defaults()) {
    const NamedValues values = named_values(*space, point);
    if (value_or(values, "warpgroups", 0) == 0 || value_or(values, "rule.join_sums", 0) == 0 || seen.size() == most) continue;
    if (!seen.emplace(value_or(values, "cluster", 1), value_or(values, "persistent", 0), value_or(values, "ping_pong_tiles", 0))
             .second)
      continue;
    const Candidate candidate = space->candidate(point);
    EXPECT_EQ(candidate.infeasible, "");
    if (!candidate.infeasible.empty()) continue;
    const Schedule schedule = schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    const auto& kernels = compiled.plans->kernels;
    EXPECT_EQ(
        std::count_if(kernels.begin(), kernels.end(), [](const PlannedKernel& kernel) { return kernel.tensor.has_value(); }), 1);
    EXPECT_EQ(testing::run_emulated(compiled, meaning, ragged, {.tolerance = 4e-3}, {1}), "") << ::testing::PrintToString(values);
  }
  return seen.size();
}

TEST(JoinedSums, GuessesOfEachKindAreRight) {
  for (const bool late : {false, true}) {
    const Nest nest = recurrent_gates(late);
    EXPECT_GE(check_guesses(nest, complete_sizes(nest, {{"M", 4096}, {"N", 1024}, {"K", 1024}, {"P", 1024}}),
                            {{"M", 70}, {"N", 72}, {"K", 37}, {"P", 30}}),
              3U);
  }
}

TEST(JoinedSums, GatesOfConvolutionsAreOneKernel) {
  const auto check = [](const AddedConvolutions& form, std::int64_t k, std::int64_t p) {
    const Nest nest = added_convolutions(form);
    const Sizes sizes = complete_sizes(nest, {{"B", 32}, {"Y", 28}, {"Z", 28}, {"F", 128}, {"K", k}, {"P", p}});
    EXPECT_EQ(check_guesses(nest, sizes, {{"B", 3}, {"Y", 2}, {"Z", 5}, {"F", 40}, {"K", k}, {"P", p}}, 1), 1U);
  };
  check({.gates = 4}, 64, 64);
  check({.gates = 4}, 40, 24);
  check({.gates = 4, .type = ElementType::bf16}, 64, 72);
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
