// Block plans of operators and of shipped records have proofs; nests whose lanes, warps or blocks would meet in one element have none.
#include "api/operators.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/tile/tile_program.h"
#include "support/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace nestor {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(BlockProof, FirstGpuCandidatesOfEveryOperatorHaveOne) {
  int kernels = 0;
  for (const OperatorEntry& entry : builtin_operators()) {
    const Nest nest = load_operator(entry.op, entry.variants.front());
    const Sizes sizes = complete_sizes(nest, {});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, 132));
    for (const Point& point : space->defaults()) {
      const Candidate candidate = space->candidate(point);
      if (!candidate.infeasible.empty()) continue;
      try {
        const TileProgram program = build_tile_program(schedules.replay(candidate.steps));
        for (const std::string& fact : certify_kernels(program, {}).blocks) {
          EXPECT_THAT(fact, Not(HasSubstr("not proved: "))) << entry.op;
          ++kernels;
        }
      } catch (const UserError&) {
        continue;  // a candidate that does not fit
      }
      break;
    }
  }
  EXPECT_GT(kernels, 40);
}

/// Choices at random: staged and resident, clusters, parts of sums, tiles in shared memory.
TEST(BlockProof, CandidatesOfOperatorsOnRowsHaveOne) {
  std::mt19937 random(1);
  for (const char* op : {"layernorm", "softmax", "layernorm_backward"}) {
    const Nest nest = load_operator(op, "bf16");
    const Sizes sizes = complete_sizes(nest, {});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, 132));
    for (int k = 0; k < 30; ++k) {
      Point point;
      for (const Parameter& parameter : space->parameters())
        point.push_back(static_cast<int>(random() % parameter.choices.size()));
      const Candidate candidate = space->candidate(point);
      if (!candidate.infeasible.empty()) continue;
      try {
        for (const std::string& fact : certify_kernels(build_tile_program(schedules.replay(candidate.steps)), {}).blocks)
          EXPECT_THAT(fact, Not(HasSubstr("not proved: "))) << op;
      } catch (const UserError&) {  // a candidate that does not fit
      }
    }
  }
}

}  // namespace
}  // namespace nestor
