// Error propagation through each scalar operation.
#include "autotune/oracle/value_errors.h"

#include "autotune/oracle/error_sum.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"
#include "support/system/wide_vectors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace nestor {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// exp in f32 is infinite from here on.
constexpr double kLargestExponent = 88.722839;
/// Kernels move factors through differences, c (a - b) = c a - c b, and pay with a rounding of c a: a relative error of u |a| behind
/// an exponential. No more than this much of it is granted.
constexpr double kMostDistributed = 0x1p-10;
/// Relative errors of a polynomial in place of an exponential, and of the hardware's tanh.
constexpr double kCoarseExp = 1.2e-4 / kErrorMargin, kCoarseTanh = 0x1.1p-11 / kErrorMargin;

struct Value {
  double value, error;
  double margin() const { return kErrorMargin * error; }
  /// The exact value may be 0 although this one is not.
  bool may_vanish() const { return error > 0 && std::fabs(value) <= margin(); }
};

bool exact_in_f32(double value) { return static_cast<double>(static_cast<float>(value)) == value; }

/// Error of a result of finite operands that has inherited `error`, after one rounding by `units`.
double rounded(double result, double error, double units) {
  if (!(std::fabs(result) < kInfiniteFrom)) return kInfinite;  // other orders need not overflow
  const double size = std::fabs(result);
  // What is a number of f32, and stays the nearest one, is not rounded.
  if (exact_in_f32(result) && (error == 0 || error < 0x1p-30 * size * kUnit)) return error;
  const double all = error + units * kUnit * size + (size < kSmallestNormal ? kSmallestNormal / kErrorMargin : 0);
  return size < kNearOverflow || size + kErrorMargin * all < kInfiniteFrom ? all
                                                                           : kInfinite;  // rounded otherwise it may overflow
}

/// Infinities and NaN that follow from exact operands are exact; `may_change` says that they might not be.
double special(const Value& a, const Value& b, bool may_change = false) {
  return may_change || a.error == kInfinite || b.error == kInfinite ? kInfinite : 0;
}

bool finite(const Value& a, const Value& b) { return std::isfinite(a.value) && std::isfinite(b.value); }

double sum_error(const Value& a, const Value& b, double result) {
  if (!finite(a, b)) return special(a, b);
  const double distributed = kUnit * (std::fabs(a.value) + std::fabs(b.value));
  const bool inexact = !exact_in_f32(result) || a.error + b.error > 0;
  const double most = kMostDistributed * std::max(1.0, std::fabs(result));
  return rounded(result, a.error + b.error, 1) + (inexact || result == 0 ? std::min(distributed, most) : 0);
}

double product_error(const Value& a, const Value& b, double result) {
  if (!finite(a, b)) {
    const bool either_vanishes = (!std::isfinite(a.value) && b.may_vanish()) || (!std::isfinite(b.value) && a.may_vanish());
    return special(a, b, either_vanishes);
  }
  return rounded(result, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error, 1);
}

double quotient_error(const Value& a, const Value& b, double result) {
  if (!finite(a, b)) return special(a, b, std::isinf(a.value) && b.may_vanish());
  if (b.value == 0) return b.error == 0 && a.value == 0 && a.error == 0 ? 0 : kInfinite;  // 0/0, or the sign of a zero
  // The reciprocal of a smaller number is infinite.
  if (b.may_vanish() || std::fabs(b.value) < 4 * kSmallestNormal) return kInfinite;
  return rounded(result, (a.error + std::fabs(result) * b.error) / (std::fabs(b.value) - b.error), 2);
}

double power_error(const Value& a, const Value& b, double result) {
  if (a.error == kInfinite || b.error == kInfinite) return kInfinite;
  if (!finite(a, b) || !std::isfinite(result) || a.value == 0) return a.error == 0 && b.error == 0 ? 0 : kInfinite;
  if (a.may_vanish() || (a.value < 0 && b.error > 0)) return kInfinite;
  const double logarithm = std::fabs(std::log(std::fabs(a.value)));
  const double relative = std::fabs(b.value) * a.error / (std::fabs(a.value) - a.error) + logarithm * b.error +
                          2 * kUnit * std::fabs(b.value) * logarithm;
  return rounded(result, std::fabs(result) * relative, 16);
}

/// Of a difference to a reference, exp(a - m), rules may take another one: then the terms of a quotient are rounded even where m is a, and
/// the exponential 1.
double exponential_error(const Value& a, double result, double scale, bool coarse, bool relative_to_other) {
  if (a.error == kInfinite) return kInfinite;
  if (!std::isfinite(a.value)) return 0;
  const double exponent = scale * a.value, margin = scale * a.margin();
  if (exponent - margin > kLargestExponent + 0.01) return 0;  // infinite, whoever computes it
  if (exponent + margin > kLargestExponent - 0.01) return kInfinite;
  const double inherited = std::exp(exponent + scale * a.error) - std::exp(exponent);
  constexpr double kUnits = 4;
  const bool moved = relative_to_other && a.value == 0;
  const double relative =
      2 * kUnit * std::fabs(exponent) + (coarse && a.value != 0 ? kCoarseExp : 0) + (moved ? kUnits * kUnit : 0);
  constexpr double kSurelyLarger = -100;  // an exponential of it is more than 2^-152, and need not be computed
  if (exponent + margin < kSurelyLarger && std::exp(exponent + margin) < 0x1p-152) {
    // Relative to another reference it may be no 0 yet where it meets an infinity.
    return relative_to_other ? std::max(result, kSmallestNormal / kErrorMargin) : result;
  }
  return rounded(result, inherited + relative * result, a.value == 0 ? 0 : kUnits) +
         (result < 8 * kSmallestNormal ? kSmallestNormal / kErrorMargin : 0);
}

double logarithm_error(const Value& a, double result) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  if (a.may_vanish() || (a.value > 0 && a.value < kSmallestNormal)) return kInfinite;
  if (a.value <= 0) return 0;
  return rounded(result, a.error / (a.value - a.error) + (a.value == 1 && a.error == 0 ? 0 : 2 * kUnit), 2);
}

double root_error(const Value& a, double result) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  if (a.may_vanish()) return kInfinite;
  if (a.value <= 0) return 0;
  return rounded(result, a.error / (result + std::sqrt(a.value - a.error)), 2);
}

double reciprocal_root_error(const Value& a, double result) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  if (a.may_vanish() || (a.value > 0 && a.value < kSmallestNormal)) return kInfinite;
  if (a.value <= 0) return 0;
  return rounded(result, result * a.error / (2 * (a.value - a.error)), 4);
}

double tanh_error(const Value& a, double result, bool coarse) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  const double slope = std::min(1.0, 1 - result * result + 2 * a.error);
  return rounded(result, slope * a.error + (coarse ? kCoarseTanh * std::fabs(result) : 0), 8);
}

double erf_error(const Value& a, double result) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  return rounded(result, 1.13 * a.error, 8);
}

double sine_error(const Value& a, double result) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  return rounded(result, std::min(a.error, 2.0), 8);
}

double atan_error(const Value& a, double result) {
  if (std::isnan(a.value) || a.error == kInfinite) return special(a, a);
  return rounded(result, std::isinf(a.value) ? 0 : a.error, 8);
}

double log1p_error(const Value& a, double result) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  if (a.error > 0 && std::fabs(1 + a.value) <= a.margin()) return kInfinite;
  if (a.value <= -1) return 0;
  return rounded(result, a.error / (1 + a.value - a.error), 8);
}

double expm1_error(const Value& a, double result) {
  if (a.error == kInfinite) return kInfinite;
  if (!std::isfinite(a.value)) return 0;
  if (a.value - a.margin() > kLargestExponent + 0.01) return 0;  // infinite, whoever computes it
  if (a.value + a.margin() > kLargestExponent - 0.01) return kInfinite;
  return rounded(result, std::exp(a.value + a.error) - std::exp(a.value), 8);
}

/// A step function: exact unless a step is near.
template <class F>
double step_error(const Value& a, F&& step) {
  if (!std::isfinite(a.value) || a.error == kInfinite) return special(a, a);
  if (a.error == 0) return 0;
  return (step(a.value + a.margin()) - step(a.value - a.margin())) / kErrorMargin;
}

double cast_error_of(ElementType to, ElementType from, const Value& a) {
  switch (to) {
    case ElementType::f32:
      if (!std::isfinite(a.value)) return special(a, a);
      return from == ElementType::i32 ? rounded(a.value, a.error, 1) : a.error;
    case ElementType::f16:
    case ElementType::bf16:
      return std::isfinite(a.value) ? cast_error(to, a.value, a.error) : special(a, a);
    case ElementType::i32:
    case ElementType::i64:
      return step_error(a, [](double x) { return std::trunc(x); });
    case ElementType::boolean:
      return a.error > 0 && std::fabs(a.value) <= a.margin() ? 1 : 0;
  }
  return 0;
}

/// 1 where a comparison may come out otherwise.
double comparison_error(const Value& a, const Value& b) {
  if (a.error == 0 && b.error == 0) return 0;
  if (a.error == kInfinite || b.error == kInfinite) return 1;
  if (!finite(a, b)) return 0;
  return std::fabs(a.value - b.value) <= a.margin() + b.margin() ? 1 : 0;
}

double select_error(const Value& condition, const Value& b, const Value& c) {
  if (condition.error == 0) return condition.value != 0 ? b.error : c.error;
  if (b.value == c.value || (std::isnan(b.value) && std::isnan(c.value))) return std::max(b.error, c.error);
  if (!finite(b, c)) return kInfinite;
  return std::max(b.error, c.error) + std::fabs(b.value - c.value);
}

/// `decisive`: the value of one operand that decides alone.
double logic_error(const Value& a, const Value& b, bool decisive) {
  const auto decides = [&](const Value& x) { return x.error == 0 && (x.value != 0) == decisive; };
  return (a.error > 0 || b.error > 0) && !decides(a) && !decides(b) ? 1 : 0;
}

double integer_error(const Value& a, const Value& b) { return a.error == 0 && b.error == 0 ? 0 : kInfinite; }

/// Is the value of an instruction a difference of others, or a multiple of one?
bool is_difference(const ValueCode& code, int position) {
  if (position < 0) return false;
  const ValueCode::Instruction& i = code.instructions()[position];
  switch (i.op) {
    case ScalarOp::sub:
    case ScalarOp::add:
      return true;
    case ScalarOp::mul:
      return is_difference(code, i.a) || is_difference(code, i.b);
    case ScalarOp::div:
    case ScalarOp::neg:
    case ScalarOp::cast:
      return is_difference(code, i.a);
    default:
      return false;
  }
}

double floating_error(const ValueCode& code, const ValueCode::Instruction& i, const RoundingModel& model, const Value& a,
                      const Value& b, double result) {
  switch (i.op) {
    case ScalarOp::add:
    case ScalarOp::sub:
      return sum_error(a, b, result);
    case ScalarOp::mul:
      return product_error(a, b, result);
    case ScalarOp::div: {
      // Quotients may be products with a reciprocal that several share (rule reciprocal): x / x is not 1 then. Of constants they are not.
      const bool shared = i.b >= 0 && code.instructions()[static_cast<std::size_t>(i.b)].op != ScalarOp::constant;
      return quotient_error(a, b, result) + (shared && std::isfinite(result) ? 2 * kUnit * std::fabs(result) : 0);
    }
    case ScalarOp::pow:
      return power_error(a, b, result);
    case ScalarOp::exp:
      return exponential_error(a, result, 1, model.matrix_type.has_value(), is_difference(code, i.a));
    case ScalarOp::exp2:
      return exponential_error(a, result, 0.6931471805599453, model.matrix_type.has_value(), is_difference(code, i.a));
    case ScalarOp::log:
      return logarithm_error(a, result);
    case ScalarOp::sqrt:
      return root_error(a, result);
    case ScalarOp::rsqrt:
      return reciprocal_root_error(a, result);
    case ScalarOp::tanh:
      return tanh_error(a, result, model.matrix_type == ElementType::bf16);
    case ScalarOp::erf:
      return erf_error(a, result);
    case ScalarOp::sin:
    case ScalarOp::cos:
      return sine_error(a, result);
    case ScalarOp::log1p:
      return log1p_error(a, result);
    case ScalarOp::expm1:
      return expm1_error(a, result);
    case ScalarOp::atan:
      return atan_error(a, result);
    default:
      return integer_error(a, b);
  }
}

double error_of(const ValueCode& code, const ValueCode::Instruction& i, const RoundingModel& model, const Value& a,
                const Value& b, const Value& c, double result) {
  switch (i.op) {
    case ScalarOp::min:
      return larger_error(-a.value, a.error, -b.value, b.error);
    case ScalarOp::max:
      return larger_error(a.value, a.error, b.value, b.error);
    case ScalarOp::neg:
    case ScalarOp::abs:
      return a.error;
    case ScalarOp::floor:
      return step_error(a, [](double x) { return std::floor(x); });
    case ScalarOp::cast:
      return cast_error_of(i.type, i.operand_type, a);
    case ScalarOp::select:
      return select_error(a, b, c);
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::eq:
      return comparison_error(a, b);
    case ScalarOp::logical_and:
      return logic_error(a, b, false);
    case ScalarOp::logical_or:
      return logic_error(a, b, true);
    case ScalarOp::logical_not:
      return a.error;
    default:
      return i.type == ElementType::i32 ? integer_error(a, b) : floating_error(code, i, model, a, b, result);
  }
}

constexpr std::uint64_t kSign = std::uint64_t{1} << 63;

/// By bits, so that several are looked at at once.
bool all_zero(const double* errors, int count) {
  std::uint64_t any = 0;
  for (int k = 0; k < count; ++k) any |= std::bit_cast<std::uint64_t>(errors[k]);
  return (any & ~kSign) == 0;
}

[[gnu::always_inline]] inline bool are_exact(const double* results, int count) {
  constexpr std::uint64_t kFirstInfinite = std::bit_cast<std::uint64_t>(kInfiniteFrom);
  std::uint64_t other = 0, large = 0;
  for (int k = 0; k < count; ++k) {
    const auto bits = std::bit_cast<std::uint64_t>(results[k]);
    other |= bits ^ std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float>(results[k])));
    large |= kFirstInfinite - 1 - (bits & ~kSign);  // negative where it is
  }
  return other == 0 && (large & kSign) == 0;
}

}  // namespace

bool all_exact(const double* results, int count) { return are_exact(results, count); }

namespace {

/// What most terms of a product are: operands without an error, and a result that is not rounded. `exact`: is an operand without one?
template <class IsExact>
bool stays_exact(const ValueCode::Instruction& i, const double* results, int count, const IsExact& exact) {
  if (i.op == ScalarOp::cast) return is_float(i.type) && is_float(i.operand_type) && exact(i.a);
  return i.op == ScalarOp::mul && is_float(i.type) && exact(i.a) && exact(i.b) && all_exact(results, count);
}

/// Instructions whose results have no error, by their positions; those beyond some are left out.
class Exact {
 public:
  bool operator[](int position) const { return position >= 0 && position < kMost && known_[static_cast<std::size_t>(position)]; }
  void add(std::size_t position) {
    if (position < kMost) known_[position] = true;
  }

 private:
  static constexpr int kMost = 64;
  std::array<bool, kMost> known_{};
};

/// Values of an instruction's operand and their errors.
struct Operand {
  const double *values, *errors;
  Value operator[](int k) const { return {values[k], errors[k]}; }
};

/// `error` of each point; one that is not a number is infinite.
template <class F>
void fill_errors(double* out, int count, F&& error) {
  for (int k = 0; k < count; ++k) {
    const double found = error(k);
    out[k] = std::isnan(found) ? kInfinite : found;
  }
}

bool is_f32_sum(const ValueCode& code, int position) {
  if (position < 0) return false;
  const ValueCode::Instruction& i = code.instructions()[static_cast<std::size_t>(position)];
  return i.op == ScalarOp::add && i.type != ElementType::i32;
}

/// What the terms of a chain of additions come to without their signs.
double magnitude_of_terms(const ValueCode& code, const double* values, int position, int k) {
  if (!is_f32_sum(code, position)) return std::fabs(values[std::ptrdiff_t{kChunk} * position + k]);
  const ValueCode::Instruction& i = code.instructions()[static_cast<std::size_t>(position)];
  return magnitude_of_terms(code, values, i.a, k) + magnitude_of_terms(code, values, i.b, k);
}

/// Is it a sum of three terms or more, some of which, without their signs, leave the range of f32? Such sums may be taken in any order.
bool overflows_in_some_order(const ValueCode& code, const double* values, int position, int count) {
  const ValueCode::Instruction& i = code.instructions()[static_cast<std::size_t>(position)];
  if (!is_f32_sum(code, position) || !(is_f32_sum(code, i.a) || is_f32_sum(code, i.b))) return false;
  for (int k = 0; k < count; ++k) {
    const double all = magnitude_of_terms(code, values, position, k);
    if (all >= kInfiniteFrom && all < kInfinite) return true;
  }
  return false;
}

}  // namespace

const double* run_errors(const ValueCode& code, const RoundingModel& model, const double* values, double* errors,
                         LeafErrors& leaves, int count) {
  static constexpr std::array<double, kChunk> kNone{};
  const auto& instructions = code.instructions();
  Exact exact;  // their errors are not written down
  const auto operand = [&](int position) {
    const std::ptrdiff_t place = std::ptrdiff_t{kChunk} * position;
    if (position < 0) return Operand{kNone.data(), kNone.data()};
    return Operand{values + place, exact[position] ? kNone.data() : errors + place};
  };
  const auto is_exact = [&](int position) {
    return exact[position] || (position >= 0 && all_zero(operand(position).errors, count));
  };
  for (std::size_t position = 0; position < instructions.size(); ++position) {
    const ValueCode::Instruction& i = instructions[position];
    double* out = errors + position * kChunk;
    const double* result = values + position * kChunk;
    const Operand a = operand(i.a), b = operand(i.b), c = operand(i.c);
    const bool integers = i.type == ElementType::i32;
    const auto zero = [&] {
      exact.add(position);
      if (!exact[static_cast<int>(position)]) std::fill_n(out, count, 0.0);
    };
    switch (i.op) {
      case ScalarOp::constant:
      case ScalarOp::scalar:
      case ScalarOp::index:
        zero();
        break;
      case ScalarOp::read:
        if (!leaves.read_error(i.ordinal, out, count)) zero();
        break;
      default:
        // What most points take has loops of its own.
        if (overflows_in_some_order(code, values, static_cast<int>(position), count)) {
          fill_errors(out, count, [&](int k) {
            const double all = magnitude_of_terms(code, values, static_cast<int>(position), k);
            return all >= kInfiniteFrom && all < kInfinite ? kInfinite : sum_error(a[k], b[k], result[k]);
          });
        } else if (stays_exact(i, result, count, is_exact)) {
          zero();
        } else if (i.op == ScalarOp::mul && !integers) {
          fill_errors(out, count, [&](int k) { return product_error(a[k], b[k], result[k]); });
        } else if ((i.op == ScalarOp::add || i.op == ScalarOp::sub) && !integers) {
          fill_errors(out, count, [&](int k) { return sum_error(a[k], b[k], result[k]); });
        } else {
          fill_errors(out, count, [&](int k) { return error_of(code, i, model, a[k], b[k], c[k], result[k]); });
        }
    }
  }
  return operand(static_cast<int>(instructions.size()) - 1).errors;
}

const double* product_errors(const ErrorsOfFactor& a, const ErrorsOfFactor& b, const double* results, int count, double* out) {
  const auto is_exact = [&](const ErrorsOfFactor& factor) { return factor.errors == nullptr || all_zero(factor.errors, count); };
  if (is_exact(a) && is_exact(b) && all_exact(results, count)) return nullptr;
  const auto value = [](const ErrorsOfFactor& factor, int k) {
    return Value{factor.values[k], factor.errors == nullptr ? 0 : factor.errors[k]};
  };
  fill_errors(out, count, [&](int k) { return product_error(value(a, k), value(b, k), results[k]); });
  return out;
}

namespace {

/// As product_error() has it, of finite numbers in the range of f32; `wrong` counts others.
template <bool kErrors>
[[gnu::always_inline]] inline double lane_error(double a, double error_a, double b, double error_b, double result,
                                                double& wrong) {
  const double size = std::fabs(result);
  const double inherited = kErrors ? std::fabs(a) * error_b + std::fabs(b) * error_a + error_a * error_b : 0;
  const double tiny = size < kSmallestNormal ? kSmallestNormal / kErrorMargin : 0;
  // 1 or 0 instead of conditions within conditions: all lanes at once.
  const double fits = static_cast<double>(static_cast<float>(result)) == result ? 1 : 0;
  const double none = inherited == 0 ? 1 : 0, stays = inherited < 0x1p-30 * size * kUnit ? 1 : none;
  const double large = size < kNearOverflow ? 0 : 1, vanishes = size <= semantics::kUnderflow ? 1 : 0, zero = size == 0 ? 1 : 0,
               unknown = inherited < kInfinite ? 0 : 1;
  wrong += large + vanishes - zero + unknown;
  return fits * stays > 0 ? inherited : inherited + kUnit * size + tiny;
}

template <bool kShared>
[[gnu::always_inline]] inline void multiply_lanes(const double* a, const double* b, int count, double* __restrict results) {
  constexpr int kLanes = ErrorSum::kLanes;
  for (int k = 0; k < count; ++k) {
    const std::ptrdiff_t at = std::ptrdiff_t{kLanes} * k;
    const double *of_a = a + (kShared ? k : at), *of_b = b + at;
    for (int lane = 0; lane < kLanes; ++lane) results[at + lane] = of_a[kShared ? 0 : lane] * of_b[lane];
  }
}

template <bool kErrors, bool kShared>
[[gnu::always_inline]] inline bool fill_lanes(const ErrorsOfFactor& a, const ErrorsOfFactor& b, int count,
                                              double* __restrict results, double* __restrict errors) {
  constexpr int kLanes = ErrorSum::kLanes;
  double wrong[kLanes] = {};
  for (int k = 0; k < count; ++k) {
    const std::ptrdiff_t at = std::ptrdiff_t{kLanes} * k, at_a = kShared ? k : at;
    const double *of_a = a.values + at_a, *of_b = b.values + at;
    const double *off_a = kErrors ? a.errors + at_a : nullptr, *off_b = kErrors ? b.errors + at : nullptr;
    double *product = results + at, *error = errors + at;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int lane_a = kShared ? 0 : lane;
      product[lane] = of_a[lane_a] * of_b[lane];
      error[lane] = lane_error<kErrors>(of_a[lane_a], kErrors ? off_a[lane_a] : 0, of_b[lane], kErrors ? off_b[lane] : 0,
                                        product[lane], wrong[lane]);
    }
  }
  return std::all_of(wrong, wrong + kLanes, [](double lane) { return lane == 0; });
}

template <bool kShared>
[[gnu::always_inline]] inline LaneProducts fill(const ErrorsOfFactor& a, const ErrorsOfFactor& b, int count, double* results,
                                                double* errors) {
  bool numbers = false;
  if (a.errors == nullptr) {
    multiply_lanes<kShared>(a.values, b.values, count, results);
    if (are_exact(results, count * ErrorSum::kLanes)) return LaneProducts::exact;
    numbers = fill_lanes<false, kShared>(a, b, count, results, errors);
  } else {
    numbers = fill_lanes<true, kShared>(a, b, count, results, errors);
  }
  return numbers ? LaneProducts::inexact : LaneProducts::special;
}

NESTOR_AVX2 LaneProducts fill_widely(const ErrorsOfFactor& a, bool shared, const ErrorsOfFactor& b, int count, double* results,
                                     double* errors) {
  return shared ? fill<true>(a, b, count, results, errors) : fill<false>(a, b, count, results, errors);
}

}  // namespace

LaneProducts product_lanes(const ErrorsOfFactor& a, bool shared, const ErrorsOfFactor& b, int count, double* results,
                           double* errors) {
  if (has_avx2()) return fill_widely(a, shared, b, count, results, errors);
  return shared ? fill<true>(a, b, count, results, errors) : fill<false>(a, b, count, results, errors);
}

}  // namespace nestor
