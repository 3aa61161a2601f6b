// Halide's value expressions -> ScalarExpr: leaves, conversions, arithmetic, comparisons. Calls are in value_calls.cc.
#include "frontend/values/value_translator.h"

#include "frontend/values/idioms.h"

namespace nestor {

namespace ir = Halide::Internal;
using Halide::Expr;

namespace {

ScalarExpr integer_constant(std::int64_t value) {
  return ScalarExpr::constant(static_cast<double>(static_cast<std::int32_t>(value)), ElementType::i32);
}

bool is_word(const Halide::Type& type) { return type.is_int_or_uint() && type.bits() == 32; }
bool is_narrow_float(const Halide::Type& type) { return type.is_float() && type.bits() == 16; }

/// Unsigned order is signed order with the sign bit flipped.
ScalarExpr order_key(const ScalarExpr& value, const Halide::Type& type) {
  if (!type.is_uint() || type.is_bool()) return value;
  return ScalarExpr::make(ScalarOp::bit_xor, {value, integer_constant(INT32_MIN)});
}

/// A value of a 16-bit type, carried as f32.
ScalarExpr rounded(const ScalarExpr& value, const Halide::Type& type) {
  if (!is_narrow_float(type)) return value;
  return ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(type.is_bfloat() ? ElementType::bf16 : ElementType::f16, value));
}

}  // namespace

ElementType element_type_of(const Halide::Type& type, const FuncPlace& place, const Expr& expr) {
  if (type.is_scalar()) {
    if (type.is_bfloat() && type.bits() == 16) return ElementType::bf16;
    if (type.is_float() && type.bits() == 32) return ElementType::f32;
    if (type.is_float() && type.bits() == 16) return ElementType::f16;
    if (is_word(type) || type.is_bool()) return ElementType::i32;
  }
  std::ostringstream name;
  name << type;
  refuse(place, "value", expr, fmt::format("has type {}; Nestor computes with f32, f16, bf16 and 32-bit integers", name.str()));
}

void ValueTranslator::refuse_value(const Expr& expr, const std::string& reason) const { refuse(place_, "value", expr, reason); }

ScalarExpr ValueTranslator::translate(const Expr& expr) { return visit(expr); }

isl::pw_aff ValueTranslator::affine(const Expr& expr, const std::string& role) {
  const std::optional<isl::pw_aff> function = scope_.integer(expr);
  if (!function) refuse(place_, role, expr, "not affine: " + scope_.reason());
  return *function;
}

std::vector<isl::pw_aff> ValueTranslator::indices_of(const std::vector<Expr>& args, const std::string& tensor) {
  std::vector<isl::pw_aff> functions;
  for (auto arg = args.rbegin(); arg != args.rend(); ++arg) functions.push_back(affine(*arg, "index of '" + tensor + "'"));
  return functions;
}

ScalarExpr ValueTranslator::visit(const Expr& expr) {
  const auto found = done_.find(expr.get());
  if (found != done_.end()) return found->second;
  ScalarExpr value = visit_uncached(expr);
  done_.emplace(expr.get(), value);
  alive_.push_back(expr);
  return value;
}

ScalarExpr ValueTranslator::visit_uncached(const Expr& marked) {
  const Expr expr = without_markers(marked);
  if (!expr.type().is_scalar()) refuse_value(expr, "is a vector");
  if (const auto* n = expr.as<ir::FloatImm>()) {
    element_type_of(n->type, place_, expr);
    return ScalarExpr::constant(n->value, ElementType::f32);
  }
  if (const auto* n = expr.as<ir::Cast>()) return visit_cast(*n);
  if (expr.type().is_bool()) {
    if (const auto* n = expr.as<ir::UIntImm>()) return ScalarExpr::constant(n->value != 0 ? 1 : 0, ElementType::boolean);
    return visit_comparison(expr);
  }
  if (const auto* n = expr.as<ir::IntImm>(); n != nullptr && is_word(n->type)) return integer_constant(n->value);
  if (const auto* n = expr.as<ir::UIntImm>(); n != nullptr && is_word(n->type)) {
    return integer_constant(static_cast<std::int64_t>(n->value));
  }
  element_type_of(expr.type(), place_, expr);
  if (const auto* n = expr.as<ir::Variable>(); n != nullptr && parameters_.scalars.count(n->name) != 0) {
    return ScalarExpr::scalar(parameters_.scalars.at(n->name), element_type_of(n->type, place_, expr));
  }
  if (expr.type().is_int()) {
    if (const std::optional<isl::pw_aff> function = scope_.single_piece(expr)) return visit_index(*function);
  }
  if (expr.as<ir::Variable>() != nullptr) {
    scope_.integer(expr);
    refuse_value(expr, scope_.reason().empty() ? "is not a listed size or scalar" : scope_.reason());
  }
  if (const std::optional<Idiom> idiom = recognize_idiom(expr)) return ScalarExpr::make(idiom->op, {visit(idiom->argument)});
  if (const auto* n = expr.as<ir::Select>()) return visit_select(n->condition, n->true_value, n->false_value);
  if (const auto* n = expr.as<ir::Call>()) return visit_call(*n);
  return visit_arithmetic(expr);
}

ScalarExpr ValueTranslator::visit_index(const isl::pw_aff& function) {
  if (isl_pw_aff_is_cst(function.get()) == isl_bool_true) {
    const isl::val value = function.max_val();
    return integer_constant(value.num_si());
  }
  for (std::size_t k = 0; k < indices_.size(); ++k) {
    if (indices_[k].plain_is_equal(function)) return ScalarExpr::index(static_cast<int>(k));
  }
  indices_.push_back(function);
  return ScalarExpr::index(static_cast<int>(indices_.size()) - 1);
}

ScalarExpr ValueTranslator::visit_cast(const ir::Cast& cast) {
  const Expr whole(&cast);
  // The upper half of a 64-bit product is the one use of 64-bit integers that has a 32-bit operation.
  if (cast.type == Halide::UInt(32) && cast.value.type() == Halide::UInt(64)) {
    const auto* shift = cast.value.as<ir::Call>();
    const auto* quotient = cast.value.as<ir::Div>();
    Expr product;
    if (shift != nullptr && shift->is_intrinsic(ir::Call::shift_right) && constant_of(shift->args[1]) == 32)
      product = shift->args[0];
    if (quotient != nullptr && constant_of(quotient->b) == std::int64_t{1} << 32) product = quotient->a;
    const auto* mul = product.defined() ? product.as<ir::Mul>() : nullptr;
    const auto* a = mul != nullptr ? mul->a.as<ir::Cast>() : nullptr;
    const auto* b = mul != nullptr ? mul->b.as<ir::Cast>() : nullptr;
    const auto narrow = [](const Expr& e) { return e.type() == Halide::UInt(32); };
    if (a != nullptr && b != nullptr && narrow(a->value) && narrow(b->value)) {
      return ScalarExpr::make(ScalarOp::mul_high_unsigned, {visit(a->value), visit(b->value)});
    }
    const auto constant = mul != nullptr ? constant_of(mul->b) : std::nullopt;
    if (a != nullptr && constant && narrow(a->value) && *constant >= 0 && *constant <= UINT32_MAX) {
      return ScalarExpr::make(ScalarOp::mul_high_unsigned, {visit(a->value), integer_constant(*constant)});
    }
  }
  element_type_of(cast.type, place_, whole);
  // An affine integer keeps its meaning through int64.
  Expr inner = cast.value;
  while (const auto* wide = inner.as<ir::Cast>()) {
    if (!(wide->type.is_int() && wide->type.bits() >= 32 && wide->value.type().is_int() && wide->value.type().bits() >= 32))
      break;
    inner = wide->value;
  }
  element_type_of(inner.type(), place_, whole);
  return convert(visit(inner), inner.type(), cast.type, whole);
}

ScalarExpr ValueTranslator::convert(ScalarExpr value, Halide::Type from, Halide::Type to, const Expr& culprit) {
  const auto one_or_zero = [&](ElementType type) {
    return ScalarExpr::make(ScalarOp::select, {value, ScalarExpr::constant(1, type), ScalarExpr::constant(0, type)});
  };
  if (from.is_bool()) return to.is_bool() ? value : one_or_zero(to.is_float() ? ElementType::f32 : ElementType::i32);
  if (to.is_bool()) {
    const ScalarExpr zero = ScalarExpr::constant(0, from.is_float() ? ElementType::f32 : ElementType::i32);
    return ScalarExpr::make(ScalarOp::logical_not, {ScalarExpr::make(ScalarOp::eq, {value, zero})});
  }
  if (from.is_float() && to.is_float()) return from == to ? value : rounded(value, to);
  if (from.is_float()) {
    if (to.is_uint()) refuse_value(culprit, "converts a float to an unsigned integer: convert to int32 first");
    return ScalarExpr::cast(ElementType::i32, value);
  }
  if (!to.is_float()) return value;
  if (from.is_int()) return rounded(ScalarExpr::cast(ElementType::f32, value), to);
  // Both halves of an unsigned word are exact in f32, so their sum is rounded once.
  const auto half = [&](ScalarOp op, std::int64_t by) {
    return ScalarExpr::cast(ElementType::f32, ScalarExpr::make(op, {value, integer_constant(by)}));
  };
  const bool small =
      (value.op() == ScalarOp::shift_right_logical && value.args()[1].op() == ScalarOp::constant &&
       value.args()[1].number() > 0) ||
      (value.op() == ScalarOp::bit_and && value.args()[1].op() == ScalarOp::constant && value.args()[1].number() >= 0);
  if (small) return rounded(ScalarExpr::cast(ElementType::f32, value), to);
  const ScalarExpr high = ScalarExpr::make(ScalarOp::mul, {half(ScalarOp::shift_right_logical, 16), ScalarExpr::constant(65536)});
  return rounded(ScalarExpr::make(ScalarOp::add, {high, half(ScalarOp::bit_and, 0xffff)}), to);
}

ScalarExpr ValueTranslator::visit_arithmetic(const Expr& expr) {
  const auto both = [&](ScalarOp op, const Expr& a, const Expr& b) {
    return rounded(ScalarExpr::make(op, {visit(a), visit(b)}), expr.type());
  };
  const bool is_unsigned = expr.type().is_uint();
  const auto extreme = [&](const Expr& a, const Expr& b, ScalarOp op) {
    if (!is_unsigned) return both(op, a, b);
    const ScalarExpr x = visit(a);
    const ScalarExpr y = visit(b);
    const ScalarExpr less = ScalarExpr::make(ScalarOp::lt, {order_key(x, a.type()), order_key(y, b.type())});
    return op == ScalarOp::min ? ScalarExpr::make(ScalarOp::select, {less, x, y})
                               : ScalarExpr::make(ScalarOp::select, {less, y, x});
  };
  if (const auto* n = expr.as<ir::Add>()) return both(ScalarOp::add, n->a, n->b);
  if (const auto* n = expr.as<ir::Sub>()) {
    // Halide writes -x as 0 - x.
    if (ir::is_const_zero(n->a)) return ScalarExpr::make(ScalarOp::neg, {visit(n->b)});
    return both(ScalarOp::sub, n->a, n->b);
  }
  if (const auto* n = expr.as<ir::Mul>()) return both(ScalarOp::mul, n->a, n->b);
  if (const auto* n = expr.as<ir::Min>()) return extreme(n->a, n->b, ScalarOp::min);
  if (const auto* n = expr.as<ir::Max>()) return extreme(n->a, n->b, ScalarOp::max);
  if (const auto* n = expr.as<ir::Div>()) return visit_division(n->a, n->b, expr);
  if (const auto* n = expr.as<ir::Mod>()) return visit_remainder(n->a, n->b, expr);
  refuse_value(expr, "is of a kind that Nestor does not translate");
}

ScalarExpr ValueTranslator::visit_division(const Expr& a, const Expr& b, const Expr& whole) {
  if (whole.type().is_float()) return rounded(ScalarExpr::make(ScalarOp::div, {visit(a), visit(b)}), whole.type());
  const std::optional<std::int64_t> divisor = constant_of(b);
  if (!divisor || *divisor <= 0) refuse_value(whole, "divides an integer by something that is not a positive constant");
  if (whole.type().is_int()) return ScalarExpr::make(ScalarOp::div, {visit(a), integer_constant(*divisor)});
  if ((*divisor & (*divisor - 1)) != 0)
    refuse_value(whole, "divides an unsigned integer by something that is not a power of two");
  int shift = 0;
  while ((std::int64_t{1} << shift) < *divisor) ++shift;
  return ScalarExpr::make(ScalarOp::shift_right_logical, {visit(a), integer_constant(shift)});
}

ScalarExpr ValueTranslator::visit_remainder(const Expr& a, const Expr& b, const Expr& whole) {
  if (whole.type().is_float()) {
    const ScalarExpr x = visit(a);
    const ScalarExpr y = visit(b);
    const ScalarExpr quotient = ScalarExpr::make(ScalarOp::floor, {ScalarExpr::make(ScalarOp::div, {x, y})});
    return rounded(ScalarExpr::make(ScalarOp::sub, {x, ScalarExpr::make(ScalarOp::mul, {y, quotient})}), whole.type());
  }
  const std::optional<std::int64_t> divisor = constant_of(b);
  if (!divisor || *divisor <= 0) refuse_value(whole, "takes a remainder by something that is not a positive constant");
  const ScalarExpr x = visit(a);
  if ((*divisor & (*divisor - 1)) == 0) return ScalarExpr::make(ScalarOp::bit_and, {x, integer_constant(*divisor - 1)});
  if (whole.type().is_uint()) refuse_value(whole, "takes an unsigned remainder by something that is not a power of two");
  const ScalarExpr quotient = ScalarExpr::make(ScalarOp::div, {x, integer_constant(*divisor)});
  return ScalarExpr::make(ScalarOp::sub, {x, ScalarExpr::make(ScalarOp::mul, {quotient, integer_constant(*divisor)})});
}

ScalarExpr ValueTranslator::visit_comparison(const Expr& expr) {
  const auto compare = [&](ScalarOp op, const Expr& a, const Expr& b, bool negate) {
    const ScalarExpr x = visit(a);
    const ScalarExpr y = visit(b);
    const bool ordered = op != ScalarOp::eq;
    const ScalarExpr result = ScalarExpr::make(op, {ordered ? order_key(x, a.type()) : x, ordered ? order_key(y, b.type()) : y});
    return negate ? ScalarExpr::make(ScalarOp::logical_not, {result}) : result;
  };
  if (const auto* n = expr.as<ir::LT>()) return compare(ScalarOp::lt, n->a, n->b, false);
  if (const auto* n = expr.as<ir::LE>()) return compare(ScalarOp::le, n->a, n->b, false);
  if (const auto* n = expr.as<ir::GT>()) return compare(ScalarOp::lt, n->b, n->a, false);
  if (const auto* n = expr.as<ir::GE>()) return compare(ScalarOp::le, n->b, n->a, false);
  if (const auto* n = expr.as<ir::EQ>()) return compare(ScalarOp::eq, n->a, n->b, false);
  if (const auto* n = expr.as<ir::NE>()) return compare(ScalarOp::eq, n->a, n->b, true);
  if (const auto* n = expr.as<ir::And>()) return ScalarExpr::make(ScalarOp::logical_and, {visit(n->a), visit(n->b)});
  if (const auto* n = expr.as<ir::Or>()) return ScalarExpr::make(ScalarOp::logical_or, {visit(n->a), visit(n->b)});
  if (const auto* n = expr.as<ir::Not>()) return ScalarExpr::make(ScalarOp::logical_not, {visit(n->a)});
  if (const auto* n = expr.as<ir::Select>()) return visit_select(n->condition, n->true_value, n->false_value);
  if (const auto* n = expr.as<ir::Call>()) return visit_call(*n);
  refuse_value(expr, "is a condition of a kind that Nestor does not translate");
}

ScalarExpr ValueTranslator::branch(const Expr& expr, const isl::set& when) {
  if (when.is_equal(scope_.universe())) return visit(expr);
  const isl::set outer_guard = guard_;
  const std::map<const ir::IRNode*, ScalarExpr> outer_done = std::move(done_);
  done_.clear();
  guard_ = guard_.intersect(when);
  ScalarExpr value = visit(expr);
  guard_ = outer_guard;
  done_ = outer_done;
  return value;
}

ScalarExpr ValueTranslator::visit_select(const Expr& condition, const Expr& yes, const Expr& no) {
  const ScalarExpr test = visit(condition);
  const ScalarExpr when_true = branch(yes, scope_.necessary(condition, true));
  const ScalarExpr when_false = branch(no, scope_.necessary(condition, false));
  return ScalarExpr::make(ScalarOp::select, {test, when_true, when_false});
}

}  // namespace nestor
