// Integer expressions fold where their value is known.
#include "support/int_expr.h"

#include "support/error.h"
#include "support/substitution.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

TEST(IntExpr, AConstantThatDecidesAMinimumOrMaximumIsIt) {
  const IntExpr x = IntExpr::variable("x");
  EXPECT_EQ(min(IntExpr(0), max(x, IntExpr(0))).as_constant(), 0);
  EXPECT_EQ(min(max(IntExpr(5), x), IntExpr(3)).as_constant(), 3);
  EXPECT_EQ(max(IntExpr(4), min(x, IntExpr(4))).as_constant(), 4);
  const IntExpr open = min(IntExpr(3), max(x, IntExpr(1)));
  for (const std::int64_t value : {0, 1, 2, 3, 9}) {
    const std::int64_t found = open.evaluate([&](const std::string&) { return value; });
    EXPECT_EQ(found, std::min<std::int64_t>(3, std::max<std::int64_t>(value, 1)));
  }
  EXPECT_FALSE(open.as_constant());
}

TEST(IntExpr, DivisorsHoldWhateverVariablesHold) {
  const IntExpr x = IntExpr::variable("x"), y = IntExpr::variable("y");
  EXPECT_EQ(IntExpr(0).divisor(), 0);
  EXPECT_EQ((IntExpr(64) * x + IntExpr(24)).divisor(), 8);
  EXPECT_EQ((IntExpr(64) * x - IntExpr(4) * y).divisor(), 4);
  EXPECT_EQ((IntExpr(64) * mod(x, 6)).divisor(), 64);
  EXPECT_EQ(mod(IntExpr(64) * x, 24).divisor(), 8);
  EXPECT_EQ(floor_div(IntExpr(64) * x, 4).divisor(), 16);
  EXPECT_EQ(floor_div(IntExpr(64) * x, 3).divisor(), 1);
  EXPECT_EQ(min(IntExpr(16) * x, IntExpr(40)).divisor(), 8);
  EXPECT_EQ((x * y).divisor(), 1);
}

TEST(IntExpr, ValuesBeyond64BitsAreErrors) {
  const IntExpr big(std::int64_t{1} << 40);
  EXPECT_THROW(big * big, UserError);  // factories fold constants
  EXPECT_THROW(IntExpr(std::numeric_limits<std::int64_t>::max()) + IntExpr(1), UserError);
  EXPECT_THROW(IntExpr(std::numeric_limits<std::int64_t>::min()) - IntExpr(1), UserError);
  const IntExpr x = IntExpr::variable("x");
  EXPECT_THROW((x * x).evaluate([](const std::string&) { return std::int64_t{1} << 32; }), UserError);
  EXPECT_EQ((x * x).evaluate([](const std::string&) { return std::int64_t{1} << 31; }), std::int64_t{1} << 62);
  EXPECT_THROW(floor_div(x, 0).evaluate([](const std::string&) { return 1; }), UserError);
}

TEST(IntExpr, VariablesAreReplacedAtOnce) {
  const IntExpr i = IntExpr::variable("i"), j = IntExpr::variable("j");
  EXPECT_EQ(substitute_all(i * 8 + j, {{"i", j}, {"j", i}}).str(), (j * 8 + i).str()) << "they change places";
  EXPECT_EQ(substitute_all(i + j, {{"i", i + IntExpr(1)}}).str(), (i + IntExpr(1) + j).str());
  EXPECT_EQ(substitute_all(i + j, {{"i", 2}, {"j", 3}}).as_constant(), 5);
  EXPECT_FALSE(substitute_all(IntExpr(), {{"i", j}}).defined());
}

}  // namespace
}  // namespace nestor
