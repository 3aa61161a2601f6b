// Products of f32 in the space: first guesses have them as products of parts on tensor cores, and are right to the last bits of f32.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

struct Guesses : testing::SpaceGuesses {
  using SpaceGuesses::SpaceGuesses;

  /// The point's kernel on tensor cores, emulated at ragged sizes beside the definition.
  std::string wrong(const Point& point, const Sizes& ragged) {
    const CompiledNvptx compiled = compile_nvptx(program(point), {});
    if (!compiled.plans->kernels.back().tensor) return "no tensor cores";
    return testing::run_emulated(compiled, meaning(), ragged, {.tolerance = 3e-6}, {1});
  }

  bool in_parts(std::size_t k) const { return has_rule(k, "bf16x6"); }
};

const Sizes kLarge{{"M", 2048}, {"N", 2048}, {"K", 1024}};

TEST(Bf16x6Space, FirstGuessesHaveProductsOfParts) {
  Guesses guesses(f32_product(), kLarge);
  for (const std::size_t k : {0U, 1U, 2U}) {
    EXPECT_TRUE(guesses.in_parts(k)) << k;
    EXPECT_EQ(guesses.wrong(guesses.points.at(k), {{"M", 70}, {"N", 132}, {"K", 75}}), "") << k;
  }
  std::size_t on_lanes = 0;
  while (on_lanes < guesses.points.size() && guesses.in_parts(on_lanes)) ++on_lanes;
  EXPECT_LT(on_lanes, guesses.points.size()) << "plain lanes are tried, too";
}

/// A function after the product is that of f32: no hardware's tanh, no polynomials.
TEST(Bf16x6Space, FunctionsAreThoseOfF32) {
  for (const ScalarOp function : {ScalarOp::tanh, ScalarOp::exp}) {
    Guesses guesses(f32_product([&](const ScalarExpr& sum) { return ScalarExpr::make(function, {number(0.1F) * sum}); }), kLarge);
    NamedValues values = guesses.values(0);
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
  EXPECT_FALSE(guesses.in_parts(0));
}

}  // namespace
}  // namespace nestor
