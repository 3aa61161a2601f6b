// Rule nest_extrema: an extremum over all that has been reduced before takes those results.
#include "poly/algebra/all_rules.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Extrema {
  std::string inner = "0 <= i < R and 0 <= k < B and 0 <= t < 4", outer = inner;
  ReductionOp of_inner = ReductionOp::max, of_outer = ReductionOp::max;
  double start = -kInfinity;
  double factor = 1;           ///< of the terms of the outer one
  std::string result = "[0]";  ///< of the outer one
  ElementType type = ElementType::f32;
};

/// most[i, k] = max over t of |x[i, k, t]|, whole = max over i, k, t of the same, and out[i, k] of both.
Nest scales(const Extrema& form) {
  const ScalarExpr size = samples::apply(ScalarOp::abs, read(0));
  const std::string cell = "0 <= i < R and 0 <= k < B";
  const bool rows = form.result == "[i]";
  const std::string own = rows ? "whole_init[i] : 0 <= i < R" : "whole_init[i] : i = 0";
  return NestBuilder("scales", {{"R", 5}, {"B", 3}})
      .tensor("x", TensorRole::input, {"R", "B", "4"})
      .tensor("most", TensorRole::temporary, {"R", "B"}, form.type)
      .tensor("whole", TensorRole::temporary, {rows ? "R" : "1"})
      .tensor("out", TensorRole::output, {"R", "B"})
      .statement("most_init[i, k] : " + cell, "most[i, k]", {}, ScalarExpr::constant(form.start, form.type))
      .statement("most[i, k, t] : " + form.inner, "most[i, k]", {"x[i, k, t]"}, size, form.of_inner)
      .statement(own, "whole[i]", {}, number(form.of_outer == ReductionOp::max ? -kInfinity : kInfinity))
      .statement("whole[i, k, t] : " + form.outer, "whole" + form.result, {"x[i, k, t]"},
                 form.factor == 1 ? size : size * number(form.factor), form.of_outer)
      .statement("out[i, k] : " + cell, "out[i, k]", {"most[i, k]", "whole" + (rows ? std::string("[i]") : "[0]")},
                 ScalarExpr::make(
                     ScalarOp::add,
                     {form.type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, form.type)), read(1)}))
      .build();
}

bool matches(const Extrema& form) { return !rule("nest_extrema").find(scales(form)).empty(); }

TEST(NestExtrema, OneOfAllTakesThoseOfBlocks) {
  for (const char* result : {"[0]", "[i]"}) {
    const Nest before = scales({.result = result});
    ASSERT_EQ(rule("nest_extrema").find(before).size(), 1U);
    const Nest after = rule("nest_extrema").apply(before, {"whole"}).nest;
    validate(after);
    EXPECT_THAT(after.statement("whole").dims, ElementsAre("i", "k"));
    EXPECT_EQ(after.statement("whole").reads.front().tensor, "most");
    EXPECT_EQ(differences(before, after, {{"R", 5}, {"B", 3}}, 60), 0) << "with infinities and NaN";
    EXPECT_TRUE(rule("nest_extrema").find(after).empty()) << "once";
  }
  EXPECT_TRUE(matches({.of_inner = ReductionOp::min, .of_outer = ReductionOp::min, .start = kInfinity}));
}

TEST(NestExtrema, OthersHaveTermsOfTheirOwn) {
  EXPECT_TRUE(matches({}));
  EXPECT_TRUE(matches({.outer = "0 <= i < R and 0 <= k < B - 1 and 0 <= t < 4"})) << "some blocks";
  EXPECT_FALSE(matches({.outer = "0 <= i < R and 0 <= k < B and 0 <= t < 3"})) << "parts of blocks";
  EXPECT_FALSE(
      matches({.inner = "0 <= i < R and 0 <= k < B and 0 <= t < 3", .outer = "0 <= i < R and 0 <= k < B and 0 <= t < 4"}))
      << "more than blocks have";
  EXPECT_FALSE(matches({.of_inner = ReductionOp::min, .start = kInfinity})) << "a maximum of minima";
  EXPECT_FALSE(matches({.start = 0})) << "blocks start from more than nothing";
  EXPECT_FALSE(matches({.factor = 2})) << "other terms";
  EXPECT_FALSE(matches({.type = ElementType::f16})) << "rounded results";
}

}  // namespace
}  // namespace nestor
