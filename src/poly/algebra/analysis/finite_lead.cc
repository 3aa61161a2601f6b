// Limits that keep a leading value and its multiples finite.
#include "poly/algebra/analysis/finite_lead.h"

#include <cmath>
#include <functional>
#include <limits>

#include "poly/algebra/analysis/value_range.h"
#include "poly/algebra/values/builders.h"

namespace nestor {
namespace {

/// So that a rounded quotient times its divisor is finite.
constexpr double kShrink = 1 - 0x1p-23;
/// Limits beyond this change no term: where m lies beyond, all terms are 0, or 1 where they equal it.
constexpr double kFarthest = 1e30;

/// The number next to `lowest` whose multiple is finite.
double lowest_multiplied(double lowest, double factor) {
  const auto multiple = [&](float number) { return static_cast<float>(static_cast<double>(number) * factor); };
  auto bound = static_cast<float>(lowest / factor);
  while (std::isfinite(multiple(bound)) && std::fabs(bound) < kLargestFloat)
    bound = std::nextafter(bound, static_cast<float>(lowest));
  while (!std::isfinite(multiple(bound))) bound = std::nextafter(bound, 0.0F);
  return bound;
}

/// The same for a factor over scalars, as far as one division tells: all of it is the same for a whole kernel.
ScalarExpr limit_for(double lowest, const ScalarExpr& factor) {
  const auto at_most = [](const ScalarExpr& value, double limit) {
    return ScalarExpr::make(ScalarOp::le, {value, build::number(limit)});
  };
  const ScalarExpr quotient = build::div(build::number(lowest), factor);
  const ScalarExpr product = build::unary(ScalarOp::abs, build::mul(quotient, factor));
  const ScalarExpr bound =
      build::select(at_most(product, kLargestFloat), quotient, build::div(build::number(lowest * kShrink), factor));
  return build::select(at_most(factor, 1), build::number(lowest), bound);
}

/// m of select(m == -inf, x, m) or select(not(m == -inf), m, x) with a finite number x, for a minimum with +inf.
std::optional<ScalarExpr> chosen_where_finite(ReductionOp reduction, const ScalarExpr& expr) {
  constexpr double kLargest = 0x1p64;  // of x, so that its multiples are finite
  const double infinity =
      reduction == ReductionOp::max ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  const bool negated = expr.args()[0].op() == ScalarOp::logical_not;
  const ScalarExpr& test = negated ? expr.args()[0].args()[0] : expr.args()[0];
  if (test.op() != ScalarOp::eq) return std::nullopt;
  const ScalarExpr &m = expr.args()[negated ? 1 : 2], &number = expr.args()[negated ? 2 : 1];
  const auto compares = [&](std::size_t k) { return test.args()[k].is_constant(infinity) && test.args()[1 - k].equals(m); };
  const bool finite = number.op() == ScalarOp::constant && std::fabs(number.number()) <= kLargest;
  return finite && (compares(0) || compares(1)) ? std::optional(m) : std::nullopt;
}

}  // namespace

bool is_multiplied(const Monomial& factor) { return !factor.factors.empty() || std::fabs(factor.coefficient) > 1; }

ScalarExpr finite_lead(const OnlinePlan& plan, ReductionOp reduction, const ScalarExpr& m) {
  const ScalarOp extremum = reduction == ReductionOp::max ? ScalarOp::max : ScalarOp::min;
  const double lowest = reduction == ReductionOp::max ? -kLargestFloat : kLargestFloat;
  ScalarExpr limit = build::number(lowest);
  for (Monomial factor : plan.lead_factors) {
    factor.coefficient = std::fabs(factor.coefficient);
    if (!is_multiplied(factor)) continue;
    const ScalarExpr bound = factor.factors.empty() ? build::number(lowest_multiplied(lowest, factor.coefficient))
                                                    : limit_for(lowest, to_expr(factor));
    limit = limit.is_constant(lowest) ? bound : ScalarExpr::make(extremum, {bound, limit});
  }
  return ScalarExpr::make(extremum, {m, limit});
}

std::optional<ScalarExpr> inside_finite_lead(ReductionOp reduction, const ScalarExpr& expr) {
  if (expr.op() == ScalarOp::select) return chosen_where_finite(reduction, expr);
  if (expr.op() != (reduction == ReductionOp::max ? ScalarOp::max : ScalarOp::min)) return std::nullopt;
  const double sign = reduction == ReductionOp::max ? -1 : 1;
  const std::function<bool(const ScalarExpr&)> is_limit = [&](const ScalarExpr& limit) {
    if (limit.op() == ScalarOp::constant) return std::isfinite(limit.number()) && limit.number() * sign >= kFarthest;
    if (limit.op() == expr.op()) return is_limit(limit.args()[0]) && is_limit(limit.args()[1]);
    return limit.op() == ScalarOp::select && limit.args()[1].is_constant(sign * kLargestFloat);
  };
  return is_limit(expr.args()[1]) ? std::optional(expr.args()[0]) : std::nullopt;
}

}  // namespace nestor
