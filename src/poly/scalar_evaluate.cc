// Evaluation of scalar expressions in double: the meaning that every back end approximates.
#include "poly/scalar_expr.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/error.h"

namespace nestor {
namespace {

/// Rounds to `mantissa_bits` explicit bits with smallest exponent `min_exponent` (round to nearest even, subnormals kept)
/// and overflows to infinity beyond `largest`.
double round_to_format(double value, int mantissa_bits, int min_exponent, double largest) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double unit = std::ldexp(1.0, exponent - mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  if (std::fabs(rounded) > largest) return std::copysign(std::numeric_limits<double>::infinity(), value);
  return rounded;
}

double to_integer(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kLow = std::numeric_limits<std::int32_t>::min();
  constexpr double kHigh = std::numeric_limits<std::int32_t>::max();
  return std::fmin(std::fmax(std::trunc(value), kLow), kHigh);
}

double cast_to(ElementType type, double value) {
  switch (type) {
    case ElementType::f32:
      return value;
    case ElementType::f16:
      return round_to_format(value, 10, -14, 65504.0);
    case ElementType::bf16:
      return round_to_format(value, 7, -126, 0x1.fep127);
    case ElementType::i32:
      return to_integer(value);
    case ElementType::boolean:
      return value != 0 ? 1 : 0;
  }
  return value;
}

double wrap(std::int64_t value) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(value)); }
std::uint32_t bits(double value) { return static_cast<std::uint32_t>(static_cast<std::int64_t>(value)); }

/// Arithmetic on i32 wraps around; division rounds towards minus infinity, and by zero gives zero.
double integer_op(ScalarOp op, double x, double y) {
  const auto a = static_cast<std::int64_t>(x);
  const auto b = static_cast<std::int64_t>(y);
  switch (op) {
    case ScalarOp::add:
      return wrap(a + b);
    case ScalarOp::sub:
      return wrap(a - b);
    case ScalarOp::mul:
      return wrap(a * b);
    case ScalarOp::div:
      return b == 0 ? 0 : wrap(static_cast<std::int64_t>(std::floor(x / y)));
    case ScalarOp::bit_and:
      return wrap(bits(x) & bits(y));
    case ScalarOp::bit_or:
      return wrap(bits(x) | bits(y));
    case ScalarOp::bit_xor:
      return wrap(bits(x) ^ bits(y));
    case ScalarOp::shift_left:
      return wrap(bits(x) << (bits(y) & 31U));
    case ScalarOp::shift_right_logical:
      return wrap(bits(x) >> (bits(y) & 31U));
    case ScalarOp::mul_high_unsigned:
      return wrap(static_cast<std::int64_t>((static_cast<std::uint64_t>(bits(x)) * bits(y)) >> 32U));
    default:
      internal_error("{} has no integer form", to_string(op));
  }
}

double binary(ScalarOp op, ElementType type, double a, double b) {
  switch (op) {
    case ScalarOp::min:
      return std::fmin(a, b);
    case ScalarOp::max:
      return std::fmax(a, b);
    case ScalarOp::pow:
      return std::pow(a, b);
    case ScalarOp::lt:
      return a < b ? 1 : 0;
    case ScalarOp::le:
      return a <= b ? 1 : 0;
    case ScalarOp::eq:
      return a == b ? 1 : 0;
    default:
      break;
  }
  if (type == ElementType::i32 || op >= ScalarOp::bit_and) return integer_op(op, a, b);
  switch (op) {
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::div:
      return a / b;
    default:
      internal_error("{} is no operation of two values", to_string(op));
  }
}

double unary(ScalarOp op, double a) {
  switch (op) {
    case ScalarOp::neg:
      return -a;
    case ScalarOp::abs:
      return std::fabs(a);
    case ScalarOp::exp:
      return std::exp(a);
    case ScalarOp::exp2:
      return std::exp2(a);
    case ScalarOp::log:
      return std::log(a);
    case ScalarOp::sqrt:
      return std::sqrt(a);
    case ScalarOp::rsqrt:
      return 1 / std::sqrt(a);
    case ScalarOp::tanh:
      return std::tanh(a);
    case ScalarOp::erf:
      return std::erf(a);
    case ScalarOp::floor:
      return std::floor(a);
    case ScalarOp::logical_not:
      return a != 0 ? 0 : 1;
    default:
      internal_error("{} is no operation of one value", to_string(op));
  }
}

}  // namespace

double evaluate(const ScalarExpr& expr, const std::function<double(int)>& read, const std::function<std::int64_t(int)>& index,
                const std::function<double(const std::string&)>& scalar) {
  const auto below = [&](std::size_t k) { return evaluate(expr.args()[k], read, index, scalar); };
  switch (expr.op()) {
    case ScalarOp::constant:
      return expr.number();
    case ScalarOp::index:
      return static_cast<double>(index(expr.ordinal()));
    case ScalarOp::scalar:
      return scalar(expr.name());
    case ScalarOp::read:
      return read(expr.ordinal());
    case ScalarOp::cast:
      return cast_to(expr.type(), below(0));
    // Only the chosen side is evaluated: the other may read outside its tensor.
    case ScalarOp::select:
      return below(0) != 0 ? below(1) : below(2);
    case ScalarOp::logical_and:
      return below(0) != 0 && below(1) != 0 ? 1 : 0;
    case ScalarOp::logical_or:
      return below(0) != 0 || below(1) != 0 ? 1 : 0;
    default:
      break;
  }
  if (arity(expr.op()) == 1) return unary(expr.op(), below(0));
  return binary(expr.op(), expr.args()[0].type(), below(0), below(1));
}

}  // namespace nestor
