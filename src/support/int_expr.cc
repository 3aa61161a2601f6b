// Folding factories, queries and text of integer expressions.
#include "support/int_expr.h"

#include "support/error.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace nestor {
namespace {

[[noreturn]] void does_not_fit() { user_error("sizes too large: an integer expression does not fit 64 bits"); }

std::int64_t floored_quotient(std::int64_t a, std::int64_t b) {
  if (b <= 0) user_error("an integer expression divides by {}", b);
  return a / b - (a % b < 0 ? 1 : 0);
}

std::int64_t compute(IntOp op, const std::vector<std::int64_t>& v) {
  if (op == IntOp::select) return v[0] != 0 ? v[1] : v[2];
  if (op == IntOp::logical_not) return v[0] == 0;
  return compute_binary(op, v[0], v[1]);
}

bool same(const IntExpr& a, const IntExpr& b) {
  if (a.op() != b.op() || a.args().size() != b.args().size()) return false;
  if (a.op() == IntOp::constant) return a.value() == b.value();
  if (a.op() == IntOp::variable) return a.name() == b.name();
  for (std::size_t i = 0; i < a.args().size(); ++i) {
    if (!same(a.args()[i], b.args()[i])) return false;
  }
  return true;
}

/// Of a minimum (maximum) of `bound` and `other`: `bound` when it is a constant and the other side a maximum (minimum) with a
/// constant that is at least (at most) as large; undefined otherwise.
IntExpr decided_by_constant(IntOp op, const IntExpr& bound, const IntExpr& other) {
  if (!bound.as_constant() || other.op() != (op == IntOp::min ? IntOp::max : IntOp::min)) return {};
  for (const IntExpr& arg : other.args()) {
    if (arg.as_constant() && compute_binary(op, *bound.as_constant(), *arg.as_constant()) == *bound.as_constant()) return bound;
  }
  return {};
}

/// The simpler form of an operation whose neutral or absorbing arguments are known; undefined when there is none.
IntExpr simplified(IntOp op, const std::vector<IntExpr>& a) {
  switch (op) {
    case IntOp::add:
      if (a[0].is_constant(0)) return a[1];
      if (a[1].is_constant(0)) return a[0];
      break;
    case IntOp::sub:
      if (a[1].is_constant(0)) return a[0];
      if (same(a[0], a[1])) return 0;
      if (a[0].op() == IntOp::add && same(a[0].args()[0], a[1])) return a[0].args()[1];
      if (a[0].op() == IntOp::add && same(a[0].args()[1], a[1])) return a[0].args()[0];
      break;
    case IntOp::mul:
      if (a[0].is_constant(1)) return a[1];
      if (a[1].is_constant(1)) return a[0];
      if (a[0].is_constant(0) || a[1].is_constant(0)) return 0;
      break;
    case IntOp::floor_div:
      if (a[1].is_constant(1)) return a[0];
      break;
    case IntOp::mod:
      if (a[1].is_constant(1)) return 0;
      break;
    case IntOp::min:
    case IntOp::max:
      if (same(a[0], a[1])) return a[0];
      if (IntExpr decided = decided_by_constant(op, a[0], a[1]); decided.defined()) return decided;
      return decided_by_constant(op, a[1], a[0]);
    case IntOp::select:
      if (a[0].as_constant()) return *a[0].as_constant() != 0 ? a[1] : a[2];
      if (same(a[1], a[2])) return a[1];
      break;
    case IntOp::logical_and:
      if (a[0].is_constant(1)) return a[1];
      if (a[1].is_constant(1)) return a[0];
      if (a[0].is_constant(0) || a[1].is_constant(0)) return 0;
      break;
    case IntOp::logical_or:
      if (a[0].is_constant(0)) return a[1];
      if (a[1].is_constant(0)) return a[0];
      if (a[0].is_constant(1) || a[1].is_constant(1)) return 1;
      break;
    default:
      break;
  }
  return {};
}

const char* infix(IntOp op) {
  switch (op) {
    case IntOp::add:
      return " + ";
    case IntOp::sub:
      return " - ";
    case IntOp::mul:
      return "*";
    case IntOp::floor_div:
      return " / ";
    case IntOp::mod:
      return " % ";
    case IntOp::ge:
      return " >= ";
    case IntOp::gt:
      return " > ";
    case IntOp::eq:
      return " == ";
    case IntOp::logical_and:
      return " && ";
    case IntOp::logical_or:
      return " || ";
    default:
      return nullptr;
  }
}

}  // namespace

std::int64_t compute_binary(IntOp op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case IntOp::add:
      return __builtin_add_overflow(a, b, &out) ? (does_not_fit(), 0) : out;
    case IntOp::sub:
      return __builtin_sub_overflow(a, b, &out) ? (does_not_fit(), 0) : out;
    case IntOp::mul:
      return __builtin_mul_overflow(a, b, &out) ? (does_not_fit(), 0) : out;
    case IntOp::floor_div:
      return floored_quotient(a, b);
    case IntOp::mod:
      return a - floored_quotient(a, b) * b;
    case IntOp::min:
      return std::min(a, b);
    case IntOp::max:
      return std::max(a, b);
    case IntOp::ge:
      return a >= b;
    case IntOp::gt:
      return a > b;
    case IntOp::eq:
      return a == b;
    case IntOp::logical_and:
      return a != 0 && b != 0;
    case IntOp::logical_or:
      return a != 0 || b != 0;
    default:
      internal_error("integer operation {} does not take two values", static_cast<int>(op));
  }
}

IntExpr::IntExpr(std::int64_t value) : IntExpr(Node{IntOp::constant, value, {}, {}}) {}

IntExpr IntExpr::variable(std::string name) { return IntExpr(Node{IntOp::variable, 0, std::move(name), {}}); }

IntExpr IntExpr::make(IntOp op, std::vector<IntExpr> args) {
  std::vector<std::int64_t> values;
  for (const IntExpr& arg : args) {
    if (const auto value = arg.as_constant()) values.push_back(*value);
  }
  if (values.size() == args.size()) return compute(op, values);
  if (IntExpr simple = simplified(op, args); simple.defined()) return simple;
  return IntExpr(Node{op, 0, {}, std::move(args)});
}

std::optional<std::int64_t> IntExpr::as_constant() const {
  if (!defined() || op() != IntOp::constant) return std::nullopt;
  return value();
}

bool IntExpr::uses(const std::string& variable) const {
  if (op() == IntOp::variable) return name() == variable;
  return std::any_of(args().begin(), args().end(), [&](const IntExpr& arg) { return arg.uses(variable); });
}

std::optional<std::int64_t> IntExpr::coefficient(const std::string& variable) const {
  if (op() == IntOp::constant) return 0;
  if (op() == IntOp::variable) return name() == variable ? 1 : 0;
  if (op() == IntOp::add || op() == IntOp::sub) {
    const auto a = args()[0].coefficient(variable), b = args()[1].coefficient(variable);
    if (!a || !b) return std::nullopt;
    return op() == IntOp::add ? *a + *b : *a - *b;
  }
  if (op() == IntOp::mul) {
    for (int side = 0; side < 2; ++side) {
      const auto factor = args()[side].as_constant();
      const auto inner = args()[1 - side].coefficient(variable);
      if (factor && inner) return *factor * *inner;
    }
  }
  if (uses(variable)) return std::nullopt;
  return 0;
}

std::int64_t IntExpr::divisor() const {
  constexpr std::int64_t kLarge = std::int64_t{1} << 31;
  const auto of = [&](std::size_t k) { return args()[k].divisor(); };
  switch (op()) {
    case IntOp::constant:
      return value() == INT64_MIN ? 1 : std::abs(value());
    case IntOp::add:
    case IntOp::sub:
    case IntOp::min:
    case IntOp::max:
    case IntOp::mod:  // a less a multiple of b
      return std::gcd(of(0), of(1));
    case IntOp::select:
      return std::gcd(of(1), of(2));
    case IntOp::mul: {
      const std::int64_t a = of(0), b = of(1);
      return a < kLarge && b < kLarge ? a * b : 1;
    }
    case IntOp::floor_div: {
      const std::int64_t a = of(0);
      const auto by = args()[1].as_constant();
      return by && *by > 0 && a % *by == 0 ? a / *by : 1;
    }
    default:
      return 1;
  }
}

IntExpr IntExpr::substitute(const std::string& variable, const IntExpr& value) const {
  if (op() == IntOp::constant) return *this;
  if (op() == IntOp::variable) return name() == variable ? value : *this;
  std::vector<IntExpr> rebuilt;
  for (const IntExpr& arg : args()) rebuilt.push_back(arg.substitute(variable, value));
  return make(op(), std::move(rebuilt));
}

std::int64_t IntExpr::evaluate(const std::function<std::int64_t(const std::string&)>& value_of) const {
  if (op() == IntOp::constant) return value();
  if (op() == IntOp::variable) return value_of(name());
  if (op() == IntOp::select)
    return args()[0].evaluate(value_of) != 0 ? args()[1].evaluate(value_of) : args()[2].evaluate(value_of);
  const std::int64_t first = args()[0].evaluate(value_of);
  return op() == IntOp::logical_not ? first == 0 : compute_binary(op(), first, args()[1].evaluate(value_of));
}

std::string IntExpr::str() const {
  std::string text;
  append_to(text);
  return text;
}

/// Nothing is copied from one level to the next: proofs ask for many texts.
void IntExpr::append_to(std::string& text) const {
  if (!defined()) {
    text += "true";
    return;
  }
  if (op() == IntOp::constant) {
    text += std::to_string(value());
    return;
  }
  if (op() == IntOp::variable) {
    text += name();
    return;
  }
  const auto add = [&](const char* before, std::size_t k, const char* behind) {
    text += before;
    args()[k].append_to(text);
    text += behind;
  };
  const auto add_operand = [&](std::size_t k) {
    const bool nested = infix(args()[k].op()) != nullptr;
    add(nested ? "(" : "", k, nested ? ")" : "");
  };
  if (const char* between = infix(op())) {
    if (op() == IntOp::add) {
      add("", 0, between);
      return add("", 1, "");
    }
    add_operand(0);
    text += between;
    return add_operand(1);
  }
  if (op() == IntOp::logical_not) {
    text += "!";
    return add_operand(0);
  }
  if (op() == IntOp::select) {
    add("(", 0, " ? ");
    add("", 1, " : ");
    return add("", 2, ")");
  }
  add(op() == IntOp::min ? "min(" : "max(", 0, ", ");
  add("", 1, ")");
}

IntExpr operator+(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::add, {a, b}); }
IntExpr operator-(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::sub, {a, b}); }
IntExpr operator*(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::mul, {a, b}); }
IntExpr floor_div(const IntExpr& a, std::int64_t b) { return IntExpr::make(IntOp::floor_div, {a, IntExpr(b)}); }
IntExpr mod(const IntExpr& a, std::int64_t b) { return IntExpr::make(IntOp::mod, {a, IntExpr(b)}); }
IntExpr min(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::min, {a, b}); }
IntExpr max(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::max, {a, b}); }
IntExpr operator&&(const IntExpr& a, const IntExpr& b) { return IntExpr::make(IntOp::logical_and, {a, b}); }

}  // namespace nestor
