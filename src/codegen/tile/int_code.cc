// Linear expressions as sums, others as trees.
#include "codegen/tile/int_code.h"

#include "support/error.h"

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

/// Factors of the variables that an expression is linear in, and its constant; nothing where it is not linear.
struct LinearForm {
  std::map<std::string, std::int64_t> factors;
  std::int64_t constant = 0;
};

std::optional<LinearForm> linear_form(const IntExpr& expr) {
  switch (expr.op()) {
    case IntOp::constant:
      return LinearForm{{}, expr.value()};
    case IntOp::variable:
      return LinearForm{{{expr.name(), 1}}, 0};
    case IntOp::add:
    case IntOp::sub:
    case IntOp::mul:
      break;
    default:
      return std::nullopt;
  }
  auto a = linear_form(expr.args()[0]), b = linear_form(expr.args()[1]);
  if (!a || !b) return std::nullopt;
  if (expr.op() == IntOp::mul) {
    if (!a->factors.empty()) std::swap(a, b);
    if (!a->factors.empty()) return std::nullopt;
    for (auto& entry : b->factors) entry.second = compute_binary(IntOp::mul, a->constant, entry.second);
    b->constant = compute_binary(IntOp::mul, a->constant, b->constant);
    return b;
  }
  for (const auto& [name, factor] : b->factors) a->factors[name] = compute_binary(expr.op(), a->factors[name], factor);
  a->constant = compute_binary(expr.op(), a->constant, b->constant);
  return a;
}

}  // namespace

IntCode::IntCode(const IntExpr& expr, VariableSlots& slots) : defined_(expr.defined()) {
  if (!defined_) return;
  if (const auto form = linear_form(expr)) {
    linear_ = true;
    constant_ = form->constant;
    for (const auto& [name, factor] : form->factors) factors_.emplace_back(slots.of(name), factor);
    return;
  }
  op_ = expr.op();
  for (const IntExpr& arg : expr.args()) args_.emplace_back(arg, slots);
}

/// Says what is wrong.
void IntCode::refuse(const std::int64_t* values) const {
  std::int64_t sum = constant_;
  for (const auto& [slot, factor] : factors_) {
    if (values[slot] == kNoValue) internal_error("a variable of an integer expression has no value");
    sum = compute_binary(IntOp::add, sum, compute_binary(IntOp::mul, factor, values[slot]));
  }
}

std::int64_t IntCode::by_tree(const std::int64_t* values) const {
  const std::int64_t first = args_[0].evaluate(values);
  if (op_ == IntOp::select) return args_[first != 0 ? 1 : 2].evaluate(values);
  if (op_ == IntOp::logical_not) return first == 0;
  return compute_binary(op_, first, args_[1].evaluate(values));
}

std::optional<IntCode::Line> IntCode::along(int slot, const std::int64_t* values) const {
  if (!linear_) return std::nullopt;
  Line line{constant_, 0};
  for (const auto& [place, factor] : factors_) {
    std::int64_t term = 0;
    if (values[place] == kNoValue || __builtin_mul_overflow(factor, values[place], &term) ||
        __builtin_add_overflow(line.now, term, &line.now))
      return std::nullopt;
    if (place == slot) line.step = factor;
  }
  return line;
}

bool IntCode::uses(int slot) const {
  const auto here = [&](const auto& entry) { return entry.first == slot; };
  return std::any_of(factors_.begin(), factors_.end(), here) ||
         std::any_of(args_.begin(), args_.end(), [&](const IntCode& arg) { return arg.uses(slot); });
}

std::vector<IntCode> IntCode::conjuncts() const {
  if (!defined_) return {};
  if (op_ != IntOp::logical_and) return {*this};
  std::vector<IntCode> found = args_[0].conjuncts(), others = args_[1].conjuncts();
  found.insert(found.end(), others.begin(), others.end());
  return found;
}

}  // namespace nestor
