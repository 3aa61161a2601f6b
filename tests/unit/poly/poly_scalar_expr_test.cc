// Scalar expressions: types, rewriting, and evaluation with the rounding of each type.
#include "poly/nest/scalar_expr.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/error.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

using samples::number;
using samples::read;
using samples::operator*;
using samples::operator+;

double value_of(const ScalarExpr& expr) {
  return evaluate(expr, [](int k) { return 10.0 + k; }, [](int k) { return 100 + k; }, [](const std::string&) { return 0.25; });
}

TEST(ScalarExpr, NamesRoundTrip) {
  for (int k = 0; k <= static_cast<int>(ScalarOp::mul_high_unsigned); ++k) {
    const auto op = static_cast<ScalarOp>(k);
    EXPECT_EQ(scalar_op_from(to_string(op)), op);
  }
  EXPECT_THROW(scalar_op_from("sinh"), UserError);
  EXPECT_EQ(arity(ScalarOp::select), 3);
}

TEST(ScalarExpr, TypesFollowTheArguments) {
  const ScalarExpr less = ScalarExpr::make(ScalarOp::lt, {read(0), read(1)});
  EXPECT_EQ(less.type(), ElementType::boolean);
  EXPECT_EQ(ScalarExpr::make(ScalarOp::select, {less, number(1), number(2)}).type(), ElementType::f32);
  EXPECT_THROW(ScalarExpr::make(ScalarOp::add, {read(0)}), InternalError);
}

TEST(ScalarExpr, EvaluatesOnlyTheChosenSide) {
  const ScalarExpr choice =
      ScalarExpr::make(ScalarOp::select, {ScalarExpr::constant(0, ElementType::boolean), read(0), number(7)});
  const auto refuse = [](int) -> double { throw std::runtime_error("read outside"); };
  EXPECT_EQ(evaluate(choice, refuse, [](int) { return 0; }, [](const std::string&) { return 0.0; }), 7);
}

TEST(ScalarExpr, CastsRound) {
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::f16, number(2049))), 2048);
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::f16, number(2051))), 2052);
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::f16, number(65519))), 65504);
  EXPECT_TRUE(std::isinf(value_of(ScalarExpr::cast(ElementType::f16, number(65520)))));
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::f16, number(0x1p-25))), 0);
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::f16, number(0x1.8p-24))), 0x1p-23);
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::bf16, number(257))), 256);
  EXPECT_EQ(value_of(ScalarExpr::cast(ElementType::i32, number(-2.7))), -2);
}

TEST(ScalarExpr, ValuesHaveTheRangeOfF32) {
  const double farthest = std::numeric_limits<float>::max(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(value_of(number(farthest) + number(0x1p102)), farthest) << "f32 rounds it to that";
  EXPECT_EQ(value_of(number(-farthest) * number(1 + 0x1p-30)), -farthest);
  EXPECT_EQ(value_of(number(farthest) + number(0x1p103)), infinity);
  EXPECT_EQ(value_of(number(0x1p-75) * number(0x1p-75)), 0);
}

TEST(ScalarExpr, IntegersWrapAround) {
  const auto integer = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  const auto of = [&](ScalarOp op, double a, double b) { return value_of(ScalarExpr::make(op, {integer(a), integer(b)})); };
  EXPECT_EQ(of(ScalarOp::add, 2147483647, 1), -2147483648.0);
  EXPECT_EQ(of(ScalarOp::mul, 65537, 65537), 131073);
  EXPECT_EQ(of(ScalarOp::div, -7, 2), -4);
  EXPECT_EQ(of(ScalarOp::shift_right_logical, -1, 28), 15);
  EXPECT_EQ(of(ScalarOp::mul_high_unsigned, -1, -1), -2);
}

TEST(ScalarExpr, RewritesBottomUpAndKeepsWhatIsUnchanged) {
  const ScalarExpr expr = read(0) * number(2) + read(1);
  const ScalarExpr doubled = expr.rewrite(
      [](const ScalarExpr& node) { return node.op() == ScalarOp::constant ? ScalarExpr::constant(node.number() * 2) : node; });
  EXPECT_EQ(value_of(doubled), 51);
  EXPECT_TRUE(expr.rewrite([](const ScalarExpr& node) { return node; }).equals(expr));
  EXPECT_TRUE(expr.reads(1));
  EXPECT_FALSE(expr.reads(2));
  EXPECT_EQ(expr.str([](int k) { return "r" + std::to_string(k); }, [](int) { return "?"; }), "((r0 * 2) + r1)");
}

TEST(ScalarExpr, NeutralElementsAreNeutral) {
  for (const ReductionOp op : {ReductionOp::add, ReductionOp::mul, ReductionOp::min, ReductionOp::max}) {
    EXPECT_EQ(combine(op, neutral_element(op, ElementType::f32), -3.5), -3.5);
    EXPECT_EQ(reduction_op_from(to_string(op)), op);
  }
}

}  // namespace
}  // namespace nestor
