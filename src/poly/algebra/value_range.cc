// Interval arithmetic over scalar expressions, through elementwise temporaries.
#include "poly/algebra/value_range.h"

#include <algorithm>
#include <cmath>

#include "poly/algebra/nest_edit.h"

namespace nestor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Definitions that are looked through, one in another.
constexpr int kDeepest = 16;

ValueRange between(double low, double high) { return {low, high, false, false}; }
ValueRange unknown() { return between(-kInfinity, kInfinity); }
/// Of constants that are infinite: there is no finite value.
bool is_empty(const ValueRange& range) { return range.low > range.high; }

ValueRange constant_range(double value) {
  if (std::isfinite(value)) return between(value, value);
  return {kInfinity, -kInfinity, value == -kInfinity, value == kInfinity};
}

ValueRange either(const ValueRange& a, const ValueRange& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high), a.minus_infinity || b.minus_infinity,
          a.plus_infinity || b.plus_infinity};
}

/// 0 times an unbounded value is 0: all values are finite.
double product(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

ValueRange corners(const ValueRange& a, const ValueRange& b) {
  const auto [low, high] =
      std::minmax({product(a.low, b.low), product(a.low, b.high), product(a.high, b.low), product(a.high, b.high)});
  return between(low, high);
}

/// Of 1 / x.
ValueRange inverse(const ValueRange& x) {
  if (x.low > 0) return between(std::isinf(x.high) ? 0 : 1 / x.high, 1 / x.low);
  if (x.high < 0) return between(1 / x.high, std::isinf(x.low) ? 0 : 1 / x.low);
  return unknown();
}

/// The range of a function that does not fall.
template <class Function>
ValueRange rising(const ValueRange& x, Function&& f) {
  return between(f(x.low), f(x.high));
}

class RangeFinder {
 public:
  explicit RangeFinder(const Nest& nest) : nest_(nest) {}

  ValueRange of(const Statement& statement, const ScalarExpr& expr) {
    switch (expr.op()) {
      case ScalarOp::constant:
        return constant_range(expr.number());
      case ScalarOp::scalar:
        return of_scalar(expr.name());
      case ScalarOp::read:
        return of_read(statement.reads.at(static_cast<std::size_t>(expr.ordinal())).tensor);
      case ScalarOp::select:
        return either(of(statement, expr.args()[1]), of(statement, expr.args()[2]));
      case ScalarOp::cast:
        return expr.type() == ElementType::i32 ? unknown() : of(statement, expr.args()[0]);
      default:
        break;
    }
    std::vector<ValueRange> args;
    for (const ScalarExpr& arg : expr.args()) args.push_back(of(statement, arg));
    const bool infinite = std::any_of(args.begin(), args.end(), [](const ValueRange& range) {
      return range.minus_infinity || range.plus_infinity || is_empty(range);
    });
    return args.empty() || infinite ? unknown() : of_function(expr.op(), args);
  }

 private:
  ValueRange of_scalar(const std::string& name) const {
    for (const ScalarParam& scalar : nest_.scalars) {
      if (scalar.name == name) return between(scalar.minimum, scalar.maximum);
    }
    return unknown();
  }

  ValueRange of_read(const std::string& tensor) {
    const Statement* definition = sole_definition(nest_, tensor);
    if (definition == nullptr || nest_.tensor(tensor).role == TensorRole::input || depth_ >= kDeepest) return unknown();
    ++depth_;
    const ValueRange range = of(*definition, definition->value);
    --depth_;
    return range;
  }

  static ValueRange of_function(ScalarOp op, const std::vector<ValueRange>& args) {
    const ValueRange& x = args[0];
    switch (op) {
      case ScalarOp::add:
        return between(x.low + args[1].low, x.high + args[1].high);
      case ScalarOp::sub:
        return between(x.low - args[1].high, x.high - args[1].low);
      case ScalarOp::neg:
        return between(-x.high, -x.low);
      case ScalarOp::mul:
        return corners(x, args[1]);
      case ScalarOp::div:
        return corners(x, inverse(args[1]));
      case ScalarOp::min:
        return between(std::min(x.low, args[1].low), std::min(x.high, args[1].high));
      case ScalarOp::max:
        return between(std::max(x.low, args[1].low), std::max(x.high, args[1].high));
      case ScalarOp::abs:
        return between(std::max({0.0, x.low, -x.high}), std::max(-x.low, x.high));
      case ScalarOp::exp:
        return rising(x, [](double v) { return std::exp(v); });
      case ScalarOp::exp2:
        return rising(x, [](double v) { return std::exp2(v); });
      case ScalarOp::tanh:
        return rising(x, [](double v) { return std::tanh(v); });
      case ScalarOp::erf:
        return rising(x, [](double v) { return std::erf(v); });
      case ScalarOp::floor:
        return rising(x, [](double v) { return std::floor(v); });
      case ScalarOp::sqrt:
        return rising(x, [](double v) { return std::sqrt(std::max(v, 0.0)); });
      default:
        return unknown();
    }
  }

  const Nest& nest_;
  int depth_ = 0;
};

}  // namespace

ValueRange range_of(const Nest& nest, const Statement& statement, const ScalarExpr& expr) {
  return RangeFinder(nest).of(statement, expr);
}

}  // namespace nestor
