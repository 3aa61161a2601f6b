// Products of f32 in the space: first guesses have them as products of parts on tensor cores, and are right to the last bits of f32.
#include "autotune/oracle/oracle.h"
#include "autotune/oracle/reference.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/operand_nests.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

struct Guesses {
  Guesses(const Nest& nest, const Sizes& large)
      : schedules(nest_for_tuning(nest, complete_sizes(nest, large))),
        space(make_nest_space(schedules, complete_sizes(nest, large), gpu_space_limits(90, NvptxTarget{}.shared_limit, 132))) {}

  /// The candidate of a point, proved, and emulated at ragged sizes beside the definition.
  std::string wrong(const Point& point, const Sizes& ragged) {
    const Candidate candidate = space->candidate(point);
    if (!candidate.infeasible.empty()) return candidate.infeasible;
    const Schedule schedule = schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    if (prove_program(program, schedule).verdict != ProofVerdict::proved) return "unproved";
    const CompiledNvptx compiled = compile_nvptx(program, {});
    if (!compiled.plans->kernels.back().tensor) return "no tensor cores";
    return testing::run_emulated(compiled, build_tile_program(schedules.base({})), ragged, {.tolerance = 3e-6}, {1});
  }

  bool in_parts(const Point& point) const { return value_or(named_values(*space, point), "rule.bf16x6", 0) == 1; }

  BaseSchedules schedules;
  std::unique_ptr<Space> space;
};

const Sizes kLarge{{"M", 2048}, {"N", 2048}, {"K", 1024}};

TEST(Bf16x6Space, FirstGuessesHaveProductsOfParts) {
  Guesses guesses(f32_product(), kLarge);
  const std::vector<Point> points = guesses.space->defaults();
  for (const std::size_t k : {0U, 1U, 2U}) {
    EXPECT_TRUE(guesses.in_parts(points.at(k))) << k;
    EXPECT_EQ(guesses.wrong(points.at(k), {{"M", 70}, {"N", 132}, {"K", 75}}), "") << k;
  }
  EXPECT_TRUE(std::any_of(points.begin(), points.end(), [&](const Point& point) { return !guesses.in_parts(point); }))
      << "plain lanes are tried, too";
}

/// A function after the product is that of f32: no hardware's tanh, no polynomials.
TEST(Bf16x6Space, FunctionsAreThoseOfF32) {
  for (const ScalarOp function : {ScalarOp::tanh, ScalarOp::exp}) {
    Guesses guesses(f32_product([&](const ScalarExpr& sum) { return ScalarExpr::make(function, {number(0.1F) * sum}); }), kLarge);
    NamedValues values = named_values(*guesses.space, guesses.space->defaults().front());
    ASSERT_EQ(value_or(values, "rule.bf16x6", 0), 1);
    for (const std::int64_t polynomial : {0, 12}) {
      values["exp2_polynomial"] = polynomial;
      const auto point = point_from(*guesses.space, values);
      ASSERT_TRUE(point);
      EXPECT_EQ(guesses.wrong(*point, {{"M", 65}, {"N", 64}, {"K", 66}}), "") << to_string(function) << " " << polynomial;
    }
  }
}

TEST(Bf16x6Space, SmallProductsStayOnLanes) {
  Guesses guesses(f32_product(), {{"M", 256}, {"N", 256}, {"K", 256}});
  EXPECT_FALSE(guesses.in_parts(guesses.space->defaults().front()));
}

}  // namespace
}  // namespace nestor
