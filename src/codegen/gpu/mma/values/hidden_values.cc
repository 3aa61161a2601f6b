// Arithmetic of possible values. It shares nothing with what the planner knows of values (known_value).
#include "codegen/gpu/mma/values/hidden_values.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nestor::nvptx {
namespace {

constexpr double kMost = std::numeric_limits<double>::max();

Possible between(double low, double high) {
  Possible result;
  result.finite = true;
  result.low = std::max(low, -kMost);
  result.high = std::min(high, kMost);
  return result;
}

Possible negated(const Possible& x) {
  Possible result = x;
  std::swap(result.below, result.above);
  result.low = -x.high;
  result.high = -x.low;
  return result;
}

Possible sum(const Possible& x, const Possible& y) {
  Possible result;
  if (x.finite && y.finite) result = between(x.low + y.low, x.high + y.high);
  result.nan = x.nan || y.nan || (x.below && y.above) || (x.above && y.below);
  result.below = (x.below && (y.finite || y.below)) || (y.below && x.finite);
  result.above = (x.above && (y.finite || y.above)) || (y.above && x.finite);
  return result;
}

bool negative(const Possible& x) { return x.below || (x.finite && x.low < 0); }
bool positive(const Possible& x) { return x.above || (x.finite && x.high > 0); }
bool zero(const Possible& x) { return x.finite && x.low <= 0 && x.high >= 0; }
bool infinite(const Possible& x) { return x.below || x.above; }

Possible product(const Possible& x, const Possible& y) {
  Possible result;
  if (x.finite && y.finite) {
    const double corners[] = {x.low * y.low, x.low * y.high, x.high * y.low, x.high * y.high};
    result = between(*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4));
  }
  result.nan = x.nan || y.nan || (infinite(x) && zero(y)) || (infinite(y) && zero(x));
  result.above = (x.above && positive(y)) || (x.below && negative(y)) || (y.above && positive(x)) || (y.below && negative(x));
  result.below = (x.above && negative(y)) || (x.below && positive(y)) || (y.above && negative(x)) || (y.below && positive(x));
  return result;
}

/// By a positive number, else by anything.
Possible quotient(const Possible& x, const Possible& y) {
  if (y.nan || y.below || !y.finite || y.low <= 0) return Possible::anything();
  Possible inverse = between(1 / y.high, 1 / y.low);
  if (y.above) inverse.low = 0;
  return product(x, inverse);
}

Possible power(const Possible& x, double (*function)(double)) {
  Possible result;
  if (x.finite) result = between(function(x.low), function(x.high));
  if (x.below) result = result.either(Possible::exactly(0));
  result.above = x.above;
  result.nan = x.nan;
  return result;
}

/// The larger of two, and NaN where one is.
Possible larger(const Possible& x, const Possible& y) {
  if (x.only_nan() || y.only_nan()) return x.only_nan() ? x : y;
  Possible result = x.either(y);
  if (x.finite && y.finite) {
    result.low = std::max(x.low, y.low);
    result.high = std::max(x.high, y.high);
  }
  result.below = x.below && y.below;
  return result;
}

/// x == infinity ? y : x
bool replaces_infinity(const ScalarExpr& choice, double infinity) {
  const ScalarExpr &test = choice.args()[0], &otherwise = choice.args()[2];
  if (test.op() != ScalarOp::eq || otherwise.op() != ScalarOp::read) return false;
  const ScalarExpr& tested = test.args()[0];
  return tested.op() == ScalarOp::read && tested.ordinal() == otherwise.ordinal() && test.args()[1].is_constant(infinity);
}

}  // namespace

Possible Possible::anything() {
  Possible result = any_finite();
  result.nan = result.below = result.above = true;
  return result;
}

Possible Possible::any_finite() { return between(-kMost, kMost); }

Possible Possible::exactly(double value) {
  Possible result;
  result.nan = std::isnan(value);
  result.below = value == -kInfinity;
  result.above = value == kInfinity;
  if (!std::isfinite(value)) return result;
  return between(value, value);
}

bool Possible::is(double value) const {
  const int kinds = static_cast<int>(nan) + static_cast<int>(below) + static_cast<int>(above) + static_cast<int>(finite);
  if (kinds != 1) return false;
  if (value == -kInfinity) return below;
  if (value == kInfinity) return above;
  return finite && low == value && high == value;
}

Possible Possible::either(const Possible& other) const {
  Possible result = *this;
  result.nan = nan || other.nan;
  result.below = below || other.below;
  result.above = above || other.above;
  if (!other.finite) return result;
  result.low = finite ? std::min(low, other.low) : other.low;
  result.high = finite ? std::max(high, other.high) : other.high;
  result.finite = true;
  return result;
}

Possible possible_values(const ScalarExpr& expr, const std::vector<ScalarParam>& scalars,
                         const std::function<Possible(int)>& read) {
  const auto arg = [&](std::size_t k) { return possible_values(expr.args()[k], scalars, read); };
  switch (expr.op()) {
    case ScalarOp::constant:
      return Possible::exactly(expr.number());
    case ScalarOp::index:
      return Possible::any_finite();
    case ScalarOp::scalar: {
      const auto found =
          std::find_if(scalars.begin(), scalars.end(), [&](const ScalarParam& s) { return s.name == expr.name(); });
      return found == scalars.end() ? Possible::anything() : between(found->minimum, found->maximum);
    }
    case ScalarOp::read:
      return read(expr.ordinal());
    case ScalarOp::cast:
      return expr.type() == ElementType::f32 || expr.type() == ElementType::f16 || expr.type() == ElementType::bf16
                 ? arg(0)
                 : Possible::anything();
    case ScalarOp::neg:
      return negated(arg(0));
    case ScalarOp::add:
      return sum(arg(0), arg(1));
    case ScalarOp::sub:
      return sum(arg(0), negated(arg(1)));
    case ScalarOp::mul:
      return product(arg(0), arg(1));
    case ScalarOp::div:
      return quotient(arg(0), arg(1));
    case ScalarOp::exp:
      return power(arg(0), [](double x) { return std::exp(x); });
    case ScalarOp::exp2:
      return power(arg(0), [](double x) { return std::exp2(x); });
    case ScalarOp::max:
      return larger(arg(0), arg(1));
    case ScalarOp::min:
      return negated(larger(negated(arg(0)), negated(arg(1))));
    case ScalarOp::select: {
      Possible otherwise = arg(2);
      if (replaces_infinity(expr, -kInfinity)) otherwise.below = false;
      if (replaces_infinity(expr, kInfinity)) otherwise.above = false;
      return arg(1).either(otherwise);
    }
    default:
      return Possible::anything();
  }
}

}  // namespace nestor::nvptx
