// Quotients as products with scaled reciprocals.
#include "poly/algebra/values/scaled_quotient.h"

#include "poly/algebra/values/builders.h"

namespace nestor {
namespace {

/// 2^64 where y is below 2^-64, 2^-64 where it is above 2^64, else 1.
ScalarExpr power_against(const ScalarExpr& y) {
  const ScalarExpr magnitude = build::unary(ScalarOp::abs, y);
  const auto below = [](const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(ScalarOp::lt, {a, b}); };
  return build::select(below(magnitude, build::number(0x1p-64)), build::number(0x1p64),
                       build::select(below(build::number(0x1p64), magnitude), build::number(0x1p-64), build::number(1)));
}

}  // namespace

ScalarExpr scaled_quotient(const ScalarExpr& x, const ScalarExpr& y) {
  const ScalarExpr k = power_against(y);
  return build::mul(build::mul(x, k), build::div(build::number(1), build::mul(y, k)));
}

std::optional<std::pair<ScalarExpr, ScalarExpr>> inside_scaled_quotient(const ScalarExpr& expr) {
  if (expr.op() != ScalarOp::mul) return std::nullopt;
  const ScalarExpr &numerator = expr.args()[0], &reciprocal = expr.args()[1];
  if (numerator.op() != ScalarOp::mul || reciprocal.op() != ScalarOp::div) return std::nullopt;
  const ScalarExpr& divisor = reciprocal.args()[1];
  if (divisor.op() != ScalarOp::mul) return std::nullopt;
  const ScalarExpr &x = numerator.args()[0], &y = divisor.args()[0];
  return scaled_quotient(x, y).equals(expr) ? std::optional(std::pair(x, y)) : std::nullopt;
}

}  // namespace nestor
