// Interval arithmetic over scalar expressions, through temporaries.
#include "poly/algebra/analysis/range_analysis.h"

#include <isl/aff.h>
#include <isl/set.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "poly/algebra/analysis/extremum_bounds.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/nest/scalar_semantics.h"
#include "support/element_codec.h"

namespace nestor {
namespace {

constexpr double kLowestInteger = -2147483648.0, kHighestInteger = 2147483647.0;
/// Values that a reduction takes of each of its dims, at most.
constexpr double kMostPoints = 0x1p31;
constexpr double kLeastNormal = 0x1p-126;  ///< of f32 and bf16

/// Finite values alone.
ValueRange between(double low, double high) { return {low, high, false, false, false, false}; }
/// No finite values.
ValueRange nothing() { return between(1, -1); }
bool is_empty(const ValueRange& range) { return range.low > range.high; }
ValueRange unknown() { return {}; }
ValueRange integer() { return between(kLowestInteger, kHighestInteger); }

ValueRange either(const ValueRange& a, const ValueRange& b) {
  ValueRange range = is_empty(a) ? b : a;
  if (!is_empty(a) && !is_empty(b)) range = between(std::min(a.low, b.low), std::max(a.high, b.high));
  range.minus_infinity = a.minus_infinity || b.minus_infinity;
  range.plus_infinity = a.plus_infinity || b.plus_infinity;
  range.nan = a.nan || b.nan;
  range.zero = a.zero || b.zero;
  return range;
}

/// The range with 0, if it may be 0, between its bounds.
ValueRange plain(ValueRange range) {
  if (range.zero && !is_empty(range)) {
    range.low = std::min(range.low, 0.0);
    range.high = std::max(range.high, 0.0);
  }
  range.zero = false;
  return range;
}

ValueRange negated(ValueRange range) {
  std::swap(range.low, range.high);
  std::swap(range.minus_infinity, range.plus_infinity);
  range.low = -range.low;
  range.high = -range.high;
  return range;
}

ValueRange logarithm(const ValueRange& x) {
  if (is_empty(x)) return unknown();
  ValueRange range = x.high > 0 ? between(x.low > 0 ? std::log(x.low) : -104, std::log(x.high)) : nothing();
  range.minus_infinity = x.has_zero();
  range.plus_infinity = x.plus_infinity;
  range.nan = x.nan || x.low < 0 || x.minus_infinity;
  return range;
}

/// -104: of the least number above -1 that wider values may have.
ValueRange logarithm_of_successor(const ValueRange& x) {
  if (is_empty(x)) return unknown();
  ValueRange range = x.high > -1 ? between(x.low > -1 ? std::log1p(x.low) : -104, std::log1p(x.high)) : nothing();
  range.minus_infinity = x.low <= -1 && x.high >= -1;
  range.plus_infinity = x.plus_infinity;
  range.nan = x.nan || x.low < -1 || x.minus_infinity;
  return range;
}

/// Of a sine or cosine.
ValueRange oscillation(const ValueRange& x) {
  ValueRange range = between(-1, 1);
  range.nan = x.nan || x.infinite();
  return range;
}

ValueRange root(const ValueRange& x) {
  if (is_empty(x)) return unknown();
  ValueRange range = between(std::sqrt(std::max(x.low, 0.0)), std::sqrt(std::max(x.high, 0.0)));
  range.plus_infinity = x.plus_infinity;
  range.nan = x.nan || x.low < 0 || x.minus_infinity;
  range.zero = x.has_zero();
  if (range.low == 0) range.low = 0x1p-75;  // of the least positive number
  range.high = std::max(range.high, range.low);
  return range;
}

ValueRange magnitude_range(const ValueRange& x) {
  if (is_empty(x)) return unknown();
  ValueRange range = between(std::max({0.0, x.low, -x.high}), std::max(-x.low, x.high));
  range.plus_infinity = x.infinite();
  range.nan = x.nan;
  return range;
}

ValueRange extremum(const ValueRange& a, const ValueRange& b, bool maximum) {
  if (!maximum) return negated(extremum(negated(a), negated(b), true));
  const double none = -std::numeric_limits<double>::infinity();
  const auto least = [&](const ValueRange& x) { return x.minus_infinity || is_empty(x) ? none : x.low; };
  const auto most = [&](const ValueRange& x) { return is_empty(x) ? none : x.high; };
  ValueRange range = between(std::max(least(a), least(b)), std::max(most(a), most(b)));
  range.minus_infinity = a.minus_infinity && b.minus_infinity;
  range.plus_infinity = a.plus_infinity || b.plus_infinity;
  range.nan = a.nan || b.nan;
  if (std::isinf(range.low)) range.low = std::min(is_empty(a) ? range.high : a.low, is_empty(b) ? range.high : b.low);
  return std::isinf(range.high) ? (range.low = 1, range.high = -1, range) : range;
}

/// Which infinities and NaN count.
enum class Specials { all, made };

/// Operations that may overflow, if that counts.
class Arithmetic {
 protected:
  explicit Arithmetic(Specials specials) : specials_(specials) {}

  /// With what lies beyond f32 as infinities, and what is too small for its normal numbers as 0.
  ValueRange with_overflow(ValueRange range, double largest = kLargestFloat) const {
    if (is_empty(range)) return range;
    if (std::isnan(range.low) || std::isnan(range.high)) return unknown();
    if (specials_ == Specials::all) {
      range.minus_infinity = range.minus_infinity || range.low < -largest;
      range.plus_infinity = range.plus_infinity || range.high > largest;
    }
    range.low = std::clamp(range.low, -largest, largest);
    range.high = std::clamp(range.high, -largest, largest);
    return with_underflow(range, kLeastNormal);
  }

  /// What is smaller than normal numbers may vanish.
  static ValueRange with_underflow(ValueRange range, double least) {
    if (range.low > 0 && range.low < least) range.low = 0;
    if (range.high < 0 && range.high > -least) range.high = 0;
    return range;
  }

  ValueRange constant_range(double value) const {
    if (std::isfinite(value)) return with_overflow(between(value, value));
    ValueRange range = nothing();
    range.minus_infinity = std::isinf(value) && value < 0;
    range.plus_infinity = std::isinf(value) && value > 0;
    range.nan = std::isnan(value);
    return range;
  }

  ValueRange sum(const ValueRange& a, const ValueRange& b) const {
    ValueRange range = between(a.low + b.low, a.high + b.high);
    range.minus_infinity = a.minus_infinity || b.minus_infinity;
    range.plus_infinity = a.plus_infinity || b.plus_infinity;
    range.nan = a.nan || b.nan || (a.minus_infinity && b.plus_infinity) || (a.plus_infinity && b.minus_infinity);
    if (is_empty(a) || is_empty(b)) return range.nan || range.infinite() ? unknown() : nothing();
    return with_overflow(range);
  }

  ValueRange product(const ValueRange& a, const ValueRange& b) const {
    if (is_empty(a) || is_empty(b)) return unknown();
    const auto [low, high] = std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
    ValueRange range = between(low, high);
    const bool positive = a.low >= 0 && b.low >= 0 && !a.minus_infinity && !b.minus_infinity;
    range.plus_infinity = a.infinite() || b.infinite();
    range.minus_infinity = range.plus_infinity && !positive;
    range.nan = a.nan || b.nan || (a.infinite() && b.has_zero()) || (b.infinite() && a.has_zero());
    return with_overflow(range);
  }

  /// Of 1 / x.
  ValueRange inverse(const ValueRange& x) const {
    if (is_empty(x) || x.has_zero()) return unknown();
    const double low = x.infinite() ? 0 : 1 / (x.low > 0 ? x.high : x.low);
    const double high = 1 / (x.low > 0 ? x.low : x.high);
    ValueRange range = between(std::min(low, high), std::max(low, high));
    range.nan = x.nan;
    return with_overflow(range);
  }

  /// The range of a function that does not fall, from the values at and between the infinities.
  template <class Function>
  ValueRange rising(const ValueRange& x, Function&& f) const {
    const double low = f(x.minus_infinity || is_empty(x) ? -std::numeric_limits<double>::infinity() : x.low);
    const double high = f(x.plus_infinity || is_empty(x) ? std::numeric_limits<double>::infinity() : x.high);
    ValueRange range = between(low, high);
    range.nan = x.nan;
    return with_overflow(range);
  }

  /// Infinities become the ends of the type, NaN becomes 0. What is computed in f32 may lie beyond its bounds by rounding, and by as much as
  /// functions are off.
  static ValueRange as_integer(const ValueRange& x) {
    constexpr double kRounding = 0x1p-10;
    const auto whole = [](double value) { return std::clamp(std::trunc(value), kLowestInteger, kHighestInteger); };
    ValueRange range = is_empty(x)
                           ? between(kHighestInteger, kLowestInteger)
                           : between(whole(x.low - kRounding * std::fabs(x.low)), whole(x.high + kRounding * std::fabs(x.high)));
    const auto include = [&](bool is_made, double value) {
      if (is_made) range = between(std::min(range.low, value), std::max(range.high, value));
    };
    include(x.minus_infinity, kLowestInteger);
    include(x.plus_infinity, kHighestInteger);
    include(x.nan || x.zero, 0);
    return is_empty(range) ? integer() : range;
  }

  ValueRange as_type(ElementType type, const ValueRange& x) const {
    switch (type) {
      case ElementType::i32:
      case ElementType::i64:
        return as_integer(x);
      case ElementType::boolean:
        return between(0, 1);
      default:
        return is_half(type) ? in_half(type, x) : with_overflow(x);
    }
  }

  /// Rounding keeps the order of numbers.
  ValueRange in_half(ElementType type, const ValueRange& x) const {
    constexpr double kLeastOfF16 = 0x1p-14;
    const double largest = largest_of(type);
    const auto rounded = [&](double value) { return std::fabs(value) <= largest ? round_to(type, value) : value; };
    ValueRange range = x;
    if (!is_empty(x)) {
      range.low = rounded(x.low);
      range.high = rounded(x.high);
    }
    range = with_overflow(range, largest);
    return is_empty(range) || type != ElementType::f16 ? range : with_underflow(range, kLeastOfF16);
  }

  Specials specials_;
};

class RangeFinder : Arithmetic {
 public:
  explicit RangeFinder(const Nest& nest, Specials specials = Specials::all) : Arithmetic(specials), nest_(nest) {}

  ValueRange of(const Statement& statement, const ScalarExpr& expr) {
    switch (expr.op()) {
      case ScalarOp::constant:
        return expr.type() == ElementType::i32 ? between(expr.number(), expr.number()) : constant_range(expr.number());
      case ScalarOp::index:
        return of_index(statement, expr.ordinal());
      case ScalarOp::scalar:
        return expr.type() == ElementType::i32 ? integer() : of_scalar(expr.name());
      case ScalarOp::read:
        return of_tensor(statement.reads.at(expr.ordinal()).tensor);
      case ScalarOp::select:
        return either(of(statement, expr.args()[1]), of(statement, expr.args()[2]));
      case ScalarOp::cast:
        return as_type(expr.type(), plain(of(statement, expr.args()[0])));
      default:
        break;
    }
    if (expr.type() == ElementType::boolean) return between(0, 1);
    if (const auto known = exponential_sum_with_start(nest_, statement, expr)) return *known;
    if (const auto known = exponential_quotient(nest_, statement, expr)) return *known;
    if (const auto known = extremum_quotient(nest_, statement, expr)) return *known;
    std::vector<ValueRange> args;
    for (const ScalarExpr& arg : expr.args()) args.push_back(plain(of(statement, arg)));
    if (expr.type() != ElementType::i32) return of_function(expr.op(), args);
    if (const auto bits = of_bits(statement, expr, args)) return *bits;
    const ValueRange exact = of_function(expr.op(), args);
    const bool wraps =
        is_empty(exact) || exact.low < kLowestInteger || exact.high > kHighestInteger || exact.infinite() || exact.nan;
    return wraps || expr.op() == ScalarOp::div ? integer() : exact;
  }

  /// Of shifts by amounts that are known, and of words whose upper bits are cleared.
  std::optional<ValueRange> of_bits(const Statement& statement, const ScalarExpr& expr, const std::vector<ValueRange>& args) {
    if (const auto shift = semantics::signed_shift_of(expr))
      return shifted(plain(of(statement, shift->word)), plain(of(statement, shift->amount)), -1);
    switch (expr.op()) {
      case ScalarOp::shift_right_logical:
        if (args[0].low < 0 && args[1].low >= 1 && args[1].high < 32) return between(0, std::exp2(32 - args[1].low) - 1);
        return args[0].low >= 0 ? shifted(args[0], args[1], -1) : std::nullopt;
      case ScalarOp::shift_left:
        return shifted(args[0], args[1], 1);
      case ScalarOp::bit_and:
        if (args[0].low < 0 && args[1].low < 0) return std::nullopt;
        return between(
            0, std::min(args[0].low < 0 ? kHighestInteger : args[0].high, args[1].low < 0 ? kHighestInteger : args[1].high));
      default:
        return std::nullopt;
    }
  }

  /// x 2^n or floor(x / 2^n), by `direction`, if amounts are shifts and nothing overflows.
  static std::optional<ValueRange> shifted(const ValueRange& x, const ValueRange& amount, int direction) {
    if (is_empty(x) || is_empty(amount) || amount.low < 0 || amount.high > 31) return std::nullopt;
    const auto at = [&](double value, double bits) { return std::floor(value * std::exp2(direction * bits)); };
    const double low = std::min(at(x.low, amount.low), at(x.low, amount.high)),
                 high = std::max(at(x.high, amount.low), at(x.high, amount.high));
    if (low < kLowestInteger || high > kHighestInteger) return std::nullopt;
    return between(low, high);
  }

  ValueRange of_tensor(const std::string& name) {
    const Tensor& tensor = nest_.tensor(name);
    if (tensor.role == TensorRole::input)
      return as_type(tensor.type, specials_ == Specials::all ? unknown() : between(-kLargestFloat, kLargestFloat));
    if (const auto known = tensors_.find(name); known != tensors_.end()) return known->second;
    if (!open_.insert(name).second) return tensor.type == ElementType::i32 ? integer() : unknown();  // it reads itself
    const ValueRange range = as_type(tensor.type, of_writers(tensor));
    open_.erase(name);
    tensors_.emplace(name, range);
    return range;
  }

 private:
  ValueRange of_index(const Statement& statement, int ordinal) const {
    const isl::set domain = domain_in(nest_, statement);
    const isl::map values = isl::manage(isl_map_from_pw_aff(statement.indices.at(ordinal).copy())).intersect_domain(domain);
    const isl::set range = values.range();
    if (range.is_empty()) return nothing();
    const auto bound = [&](const isl::val& value, double otherwise) {
      return isl_val_is_int(value.get()) == isl_bool_true ? static_cast<double>(isl_val_get_num_si(value.get())) : otherwise;
    };
    return between(bound(range.dim_min_val(0), kLowestInteger), bound(range.dim_max_val(0), kHighestInteger));
  }

  /// A scalar with a limit is finite (support/scalar_range.h).
  ValueRange of_scalar(const std::string& name) const {
    for (const ScalarParam& scalar : nest_.scalars) {
      if (scalar.name != name) continue;
      ValueRange range = between(std::max(scalar.minimum, -kLargestFloat), std::min(scalar.maximum, kLargestFloat));
      range.minus_infinity = range.plus_infinity =
          specials_ == Specials::all && std::isinf(scalar.minimum) && std::isinf(scalar.maximum);
      return range;
    }
    return unknown();
  }

  ValueRange of_writers(const Tensor& tensor) {
    std::optional<ValueRange> start;
    const Statement* update = nullptr;
    for (const Statement* writer : writers_of(nest_, tensor.name)) {
      if (writer->reduction) {
        if (update != nullptr) return unknown();
        update = writer;
        continue;
      }
      const ValueRange value = of(*writer, writer->value);
      start = start ? either(*start, value) : value;
    }
    if (!start) return unknown();
    return update == nullptr ? *start : accumulated(*start, *update);
  }

  ValueRange accumulated(const ValueRange& start, const Statement& update) {
    const ValueRange term = of(update, update.value);
    const bool integers = nest_.tensor(update.write.tensor).type == ElementType::i32;
    switch (*update.reduction) {
      case ReductionOp::max:
      case ReductionOp::min: {
        const bool maximum = *update.reduction == ReductionOp::max;
        const ValueRange met = extremum(start, plain(term), maximum);
        const bool met_always = is_read_when_complete(nest_, update) && always_has_points(nest_, update);
        return met_always ? met : either(start, met);
      }
      case ReductionOp::add:
        return integers ? integer() : total(start, term, update);
      default:
        return integers ? integer() : unknown();
    }
  }

  ValueRange total(const ValueRange& start, const ValueRange& term, const Statement& update) {
    const bool complete = is_read_when_complete(nest_, update);
    const auto known = complete ? exponential_sum(nest_, update) : std::nullopt;
    if (known) return *known;
    const double points = std::pow(kMostPoints, static_cast<double>(reduced_dims(update).size()));
    const bool from_zero = complete && start.low == 0 && start.high == 0 && !start.infinite() && !start.nan;
    if (is_empty(term)) return unknown();
    if (from_zero && term.low > 0 && !term.minus_infinity) {
      ValueRange range = between(term.low, term.high * points);
      range.plus_infinity = term.plus_infinity;
      range.nan = term.nan;
      range.zero = term.zero || !always_has_points(nest_, update);
      return with_overflow(range);
    }
    ValueRange terms = between(std::min(plain(term).low, 0.0) * points, std::max(plain(term).high, 0.0) * points);
    terms.minus_infinity = term.minus_infinity;
    terms.plus_infinity = term.plus_infinity;
    terms = with_overflow(terms);
    terms.nan = term.nan || (terms.minus_infinity && terms.plus_infinity);
    return sum(plain(start), terms);
  }

  ValueRange of_function(ScalarOp op, const std::vector<ValueRange>& args) const {
    const ValueRange& x = args[0];
    switch (op) {
      case ScalarOp::add:
        return sum(x, args[1]);
      case ScalarOp::sub:
        return sum(x, negated(args[1]));
      case ScalarOp::neg:
        return negated(x);
      case ScalarOp::mul:
        return product(x, args[1]);
      case ScalarOp::div:
        return product(x, inverse(args[1]));
      case ScalarOp::min:
      case ScalarOp::max:
        return extremum(x, args[1], op == ScalarOp::max);
      case ScalarOp::abs:
        return magnitude_range(x);
      case ScalarOp::exp:
        return rising(x, [](double v) { return std::exp(v); });
      case ScalarOp::exp2:
        return rising(x, [](double v) { return std::exp2(v); });
      case ScalarOp::tanh:
        return rising(x, [](double v) { return std::tanh(v); });
      case ScalarOp::erf:
        return rising(x, [](double v) { return std::erf(v); });
      case ScalarOp::expm1:
        return rising(x, [](double v) { return std::expm1(v); });
      case ScalarOp::atan:
        return rising(x, [](double v) { return std::atan(v); });
      case ScalarOp::sin:
      case ScalarOp::cos:
        return oscillation(x);
      case ScalarOp::log1p:
        return logarithm_of_successor(x);
      case ScalarOp::floor:
        return is_empty(x) || x.infinite() ? unknown() : rising(x, [](double v) { return std::floor(v); });
      case ScalarOp::log:
        return logarithm(x);
      case ScalarOp::sqrt:
        return root(x);
      case ScalarOp::rsqrt:
        return inverse(plain(root(x)));
      default:
        return unknown();
    }
  }

  const Nest& nest_;
  std::map<std::string, ValueRange> tensors_;
  std::set<std::string> open_;
};

}  // namespace

ValueRange range_of(const Nest& nest, const Statement& statement, const ScalarExpr& expr) {
  return RangeFinder(nest).of(statement, expr);
}

ValueRange made_range(const Nest& nest, const Statement& statement, const ScalarExpr& expr) {
  return RangeFinder(nest, Specials::made).of(statement, expr);
}

ValueRange range_of(const Nest& nest, const std::string& tensor) { return RangeFinder(nest).of_tensor(tensor); }

}  // namespace nestor
