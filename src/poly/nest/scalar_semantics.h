// What each scalar operation means, as functions of doubles (docs/values.md): the evaluator, the oracle and the interpreters of the
// tests are made of these. Values of f32 have its range and at least its precision; i32 wraps around.
#pragma once

#include "poly/nest/scalar_expr.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace nestor::semantics {

/// From here on f32 rounds to infinity, and up to here to zero.
inline constexpr double kOverflow = 0x1p128 - 0x1p103, kUnderflow = 0x1p-150;
/// The largest number of f32: what lies between it and kOverflow is rounded to it.
inline constexpr double kFarthestNumber = std::numeric_limits<float>::max();

/// The result of an f32 operation with the range of f32.
inline double in_range(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude >= kOverflow) return std::copysign(std::numeric_limits<double>::infinity(), value);
  if (magnitude > kFarthestNumber) return std::copysign(kFarthestNumber, value);
  return magnitude <= kUnderflow ? std::copysign(0.0, value) : value;
}

/// As f32 has it: for operations that jump, where a wider value could fall on the other side.
inline double as_f32(double value) { return static_cast<float>(value); }

inline double from_word(std::uint32_t word) { return static_cast<std::int32_t>(word); }
inline std::uint32_t to_word(double value) { return static_cast<std::uint32_t>(static_cast<std::int64_t>(value)); }

/// A shift to the right of an i32 that fills up with its sign; the amount counts modulo 32.
struct SignedShift {
  ScalarExpr word, amount;
};
/// `expr` as such a shift, of the form (x ^ s) >> n ^ s with s = select(x < 0, -1, 0) and a logical >>.
std::optional<SignedShift> signed_shift_of(const ScalarExpr& expr);

inline double minimum(double a, double b) { return std::isnan(a) || a < b ? a : b; }
inline double maximum(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Rounds towards minus infinity; by zero gives zero, and the one overflow wraps around.
inline double floor_quotient(double a, double b) { return b == 0 ? 0 : from_word(to_word(std::floor(a / b))); }

/// The type whose values those of `type` are: an i64 is read as an i32.
inline ElementType value_type(ElementType type) { return type == ElementType::i64 ? ElementType::i32 : type; }

/// A value of type `from` as one of type `to`. f32 values keep what precision they have.
inline double cast_value(ElementType to, ElementType from, double value) {
  to = value_type(to);
  from = value_type(from);
  if (to == from) return value;
  if (from == ElementType::i32 && to != ElementType::boolean) value = as_f32(value);
  if (to == ElementType::f32) return value;
  return round_to(to, to == ElementType::i32 && from == ElementType::f32 ? as_f32(value) : value);
}

/// A value of type `from` as a tensor of type `to` holds it: 16-bit types round, f32 has its range.
inline double stored_value(ElementType to, ElementType from, double value) {
  return to == ElementType::f32 ? in_range(value) : cast_value(to, from, value);
}

/// A number, or a scalar argument, as a value of its type: kernels have it in no other.
inline double constant_value(ElementType type, double number) {
  return type == ElementType::f32 ? as_f32(number) : round_to(type, number);
}

/// Calls `use` with the function of one double that `op` is on operands of `type`.
template <class Use>
decltype(auto) with_unary(ScalarOp op, ElementType type, Use&& use) {
  if (type == ElementType::i32) {
    switch (op) {
      case ScalarOp::neg:
        return use([](double a) { return from_word(-to_word(a)); });
      case ScalarOp::abs:
        return use([](double a) { return a < 0 ? from_word(-to_word(a)) : a; });
      case ScalarOp::floor:
        return use([](double a) { return a; });
      default:
        internal_error("{} has no integer form", to_string(op));
    }
  }
  switch (op) {
    case ScalarOp::neg:
      return use([](double a) { return -a; });
    case ScalarOp::abs:
      return use([](double a) { return std::fabs(a); });
    case ScalarOp::exp:
      return use([](double a) { return in_range(std::exp(a)); });
    case ScalarOp::exp2:
      return use([](double a) { return in_range(std::exp2(a)); });
    case ScalarOp::log:
      return use([](double a) { return std::log(a); });
    case ScalarOp::sqrt:
      return use([](double a) { return std::sqrt(a); });
    case ScalarOp::rsqrt:
      return use([](double a) { return 1 / std::sqrt(a); });
    case ScalarOp::tanh:
      return use([](double a) { return std::tanh(a); });
    case ScalarOp::erf:
      return use([](double a) { return std::erf(a); });
    case ScalarOp::sin:
      return use([](double a) { return std::sin(a); });
    case ScalarOp::cos:
      return use([](double a) { return std::cos(a); });
    case ScalarOp::log1p:
      return use([](double a) { return std::log1p(a); });
    case ScalarOp::expm1:
      return use([](double a) { return in_range(std::expm1(a)); });
    case ScalarOp::atan:
      return use([](double a) { return std::atan(a); });
    case ScalarOp::floor:
      return use([](double a) { return std::floor(as_f32(a)); });
    case ScalarOp::logical_not:
      return use([](double a) { return a != 0 ? 0.0 : 1.0; });
    default:
      internal_error("{} is no operation of one value", to_string(op));
  }
}

/// Calls `use` with the function of two doubles that `op` is on i32 operands.
template <class Use>
decltype(auto) with_integer_binary(ScalarOp op, Use&& use) {
  switch (op) {
    case ScalarOp::add:
      return use([](double a, double b) { return from_word(to_word(a) + to_word(b)); });
    case ScalarOp::sub:
      return use([](double a, double b) { return from_word(to_word(a) - to_word(b)); });
    case ScalarOp::mul:
      return use([](double a, double b) { return from_word(to_word(a) * to_word(b)); });
    case ScalarOp::div:
      return use([](double a, double b) { return floor_quotient(a, b); });
    case ScalarOp::bit_and:
      return use([](double a, double b) { return from_word(to_word(a) & to_word(b)); });
    case ScalarOp::bit_or:
      return use([](double a, double b) { return from_word(to_word(a) | to_word(b)); });
    case ScalarOp::bit_xor:
      return use([](double a, double b) { return from_word(to_word(a) ^ to_word(b)); });
    case ScalarOp::shift_left:
      return use([](double a, double b) { return from_word(to_word(a) << (to_word(b) & 31U)); });
    case ScalarOp::shift_right_logical:
      return use([](double a, double b) { return from_word(to_word(a) >> (to_word(b) & 31U)); });
    case ScalarOp::mul_high_unsigned:
      return use([](double a, double b) {
        return from_word(static_cast<std::uint32_t>((std::uint64_t{to_word(a)} * to_word(b)) >> 32U));
      });
    default:
      internal_error("{} has no integer form", to_string(op));
  }
}

/// Calls `use` with the function of two doubles that `op` is on operands of `type`.
template <class Use>
decltype(auto) with_binary(ScalarOp op, ElementType type, Use&& use) {
  switch (op) {
    case ScalarOp::min:
      return use([](double a, double b) { return minimum(a, b); });
    case ScalarOp::max:
      return use([](double a, double b) { return maximum(a, b); });
    case ScalarOp::logical_and:
      return use([](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; });
    case ScalarOp::logical_or:
      return use([](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; });
    default:
      break;
  }
  const bool integer = type == ElementType::i32;
  switch (op) {
    case ScalarOp::lt:
      return integer ? use([](double a, double b) { return a < b ? 1.0 : 0.0; })
                     : use([](double a, double b) { return as_f32(a) < as_f32(b) ? 1.0 : 0.0; });
    case ScalarOp::le:
      return integer ? use([](double a, double b) { return a <= b ? 1.0 : 0.0; })
                     : use([](double a, double b) { return as_f32(a) <= as_f32(b) ? 1.0 : 0.0; });
    case ScalarOp::eq:
      return integer ? use([](double a, double b) { return a == b ? 1.0 : 0.0; })
                     : use([](double a, double b) { return as_f32(a) == as_f32(b) ? 1.0 : 0.0; });
    default:
      break;
  }
  if (integer) return with_integer_binary(op, use);
  switch (op) {
    case ScalarOp::add:
      return use([](double a, double b) { return in_range(a + b); });
    case ScalarOp::sub:
      return use([](double a, double b) { return in_range(a - b); });
    case ScalarOp::mul:
      return use([](double a, double b) { return in_range(a * b); });
    case ScalarOp::div:
      return use([](double a, double b) { return in_range(a / b); });
    case ScalarOp::pow:
      return use([](double a, double b) { return in_range(std::pow(a, b)); });
    default:
      internal_error("{} is no operation of two values", to_string(op));
  }
}

/// `a op b` of two partial results of `type`.
inline double combine(ReductionOp op, ElementType type, double a, double b) {
  return with_binary(combiner(op), type, [&](auto f) { return f(a, b); });
}

}  // namespace nestor::semantics
