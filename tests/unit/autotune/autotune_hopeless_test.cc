// Candidates of which few threads have work are given up by their plans, before code is made of them.
#include "autotune/gpu/gpu_compiler.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "codegen/gpu/backend.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using ::testing::HasSubstr;

/// A column of sums, and one block that computes all of it.
struct OneBlock {
  static MeasureOptions options() {
    MeasureOptions found;
    found.target.kind = Target::Kind::cuda;
    return found;
  }
  TrialProblem tried = trial_problem(samples::row_norm(512, 1024), {{"rows", 512}, {"cols", 1024}}, true);
  std::shared_ptr<GpuProblem> problem =
      std::make_shared<GpuProblem>(GpuProblem{{tried, options()}, GpuFacts{90, 132, 227 << 10, std::int64_t{1} << 36}});
  GpuCompiler compiler{problem};
  CompiledTrial compiled;

  std::optional<TrialOutcome> compile(double best_ms, bool must_finish = false) {
    compiled = {};
    return compiler.compile({{}, best_ms, must_finish}, compiled);
  }
};

TEST(Hopeless, HasNoCode) {
  OneBlock one;
  const auto outcome = one.compile(1e-6);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->status, TrialStatus::infeasible);
  EXPECT_THAT(outcome->reason, HasSubstr("few of its threads have work: it is guessed to take"));
  EXPECT_GT(one.compiled.least_ms, 5e-6);
  EXPECT_TRUE(one.compiled.kernel.code.empty());
}

TEST(Hopeless, IsDecidedByTheSameGuessThatTheCodeHas) {
  OneBlock one;
  one.compile(1e-6);
  const double guess = one.compiled.least_ms;
  for (const auto& [best, finish] : {std::pair(0.0, false), std::pair(1e-6, true), std::pair(guess, false)}) {
    ASSERT_FALSE(one.compile(best, finish)) << best;
    EXPECT_EQ(one.compiled.least_ms, guess);
    const TileProgram program = target_program(one.problem->schedules->base({}), true);
    EXPECT_EQ(one.compiled.kernel.code, compile_nvptx(program, {.keep_ir = false}).kernel.code);
  }
}

}  // namespace
}  // namespace nestor
