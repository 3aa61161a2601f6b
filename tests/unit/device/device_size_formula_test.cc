// Compiled size formulas agree with the expressions they come from.
#include "device/size_formula.h"

#include "support/error.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace nestor {
namespace {

const std::vector<std::string> kNames{"a", "b", "c"};

IntExpr random_expr(std::mt19937& random, int depth) {
  if (depth == 0 || random() % 5 == 0) {
    if (random() % 2 == 0) return IntExpr(static_cast<std::int64_t>(random() % 20) - 10);
    return IntExpr::variable(kNames[random() % 3]);
  }
  const auto arg = [&] { return random_expr(random, depth - 1); };
  switch (random() % 14) {
    case 0:
      return arg() + arg();
    case 1:
      return arg() - arg();
    case 2:
      return arg() * arg();
    case 3:
      return floor_div(arg(), 1 + static_cast<std::int64_t>(random() % 7));
    case 4:
      return mod(arg(), 1 + static_cast<std::int64_t>(random() % 7));
    case 5:
      return min(arg(), arg());
    case 6:
      return max(arg(), arg());
    case 7:
      return IntExpr::make(IntOp::select, {arg(), arg(), arg()});
    case 8:
      return IntExpr::make(IntOp::ge, {arg(), arg()});
    case 9:
      return IntExpr::make(IntOp::gt, {arg(), arg()});
    case 10:
      return IntExpr::make(IntOp::eq, {arg(), arg()});
    case 11:
      return IntExpr::make(IntOp::logical_and, {arg(), arg()});
    case 12:
      return IntExpr::make(IntOp::logical_or, {arg(), arg()});
    default:
      return IntExpr::make(IntOp::logical_not, {arg()});
  }
}

TEST(SizeFormula, AgreesWithTheExpression) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const IntExpr expr = random_expr(random, 4);
    const SizeFormula formula(expr, kNames);
    const std::vector<std::int64_t> values{static_cast<std::int64_t>(random() % 50), static_cast<std::int64_t>(random() % 5), -3};
    const auto value_of = [&](const std::string& name) { return values[static_cast<std::size_t>(name[0] - 'a')]; };
    ASSERT_EQ(formula.evaluate(values), expr.evaluate(value_of)) << expr.str();
  }
}

TEST(SizeFormula, RefusesUnknownNamesAndDepth) {
  EXPECT_THROW(SizeFormula(IntExpr::variable("d"), kNames), UserError);
  IntExpr deep = IntExpr::variable("a");
  for (int k = 0; k < 100; ++k) deep = IntExpr::make(IntOp::max, {IntExpr::variable("b"), deep});
  EXPECT_THROW(SizeFormula(deep, kNames), UserError);
}

TEST(SizeFormula, RefusesWhatDoesNotFit) {
  const SizeFormula product(IntExpr::variable("a") * IntExpr::variable("b"), kNames);
  const std::int64_t large = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_THROW(product.evaluate(std::vector<std::int64_t>{large, 3, 0}), UserError);
  EXPECT_EQ(product.evaluate(std::vector<std::int64_t>{large, 2, 0}), large * 2);
  const SizeFormula quotient(IntExpr::make(IntOp::floor_div, {IntExpr::variable("a"), IntExpr::variable("b")}), kNames);
  EXPECT_THROW(quotient.evaluate(std::vector<std::int64_t>{1, 0, 0}), UserError);
}

TEST(CompiledConstraint, AgreesWithTheConstraint) {
  std::mt19937 random(4);
  for (int round = 0; round < 2000; ++round) {
    SizeConstraint constraint;
    for (const std::string& name : kNames) {
      if (random() % 2 == 0) constraint.terms[name] = static_cast<std::int64_t>(random() % 7) - 3;
    }
    constraint.constant = static_cast<std::int64_t>(random() % 21) - 10;
    constraint.equality = random() % 3 == 0;
    constraint.modulus = random() % 3 == 0 ? 1 + static_cast<std::int64_t>(random() % 5) : 0;
    const std::vector<std::int64_t> values{1 + static_cast<std::int64_t>(random() % 9),
                                           1 + static_cast<std::int64_t>(random() % 9), 2};
    const Sizes sizes{{"a", values[0]}, {"b", values[1]}, {"c", values[2]}};
    ASSERT_EQ(CompiledConstraint(constraint, kNames).holds(values), is_valid_for({constraint}, sizes)) << constraint.str();
  }
}

}  // namespace
}  // namespace nestor
