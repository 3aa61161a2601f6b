// Walks Halide's integer expressions and rebuilds them with isl.
#include "frontend/values/affine_index.h"

#include <isl/aff.h>
#include <isl/set.h>

#include "frontend/values/refusal.h"
#include "poly/isl/isl_tools.h"

namespace nestor {

namespace ir = Halide::Internal;
using Halide::Expr;

std::optional<std::int64_t> constant_of(const Expr& expr) {
  if (!expr.type().is_int_or_uint()) return std::nullopt;
  const Expr simple = ir::simplify(expr);
  if (const auto value = ir::as_const_int(simple)) return *value;
  if (const auto value = ir::as_const_uint(simple)) return static_cast<std::int64_t>(*value);
  return std::nullopt;
}

Expr without_markers(Expr expr) {
  for (;;) {
    const auto* call = expr.as<ir::Call>();
    if (call == nullptr) return expr;
    const bool marker = call->is_intrinsic(ir::Call::likely) || call->is_intrinsic(ir::Call::likely_if_innermost) ||
                        call->is_intrinsic(ir::Call::strict_float) || call->is_intrinsic(ir::Call::promise_clamped) ||
                        call->is_intrinsic(ir::Call::unsafe_promise_clamped);
    if (!marker) return expr;
    expr = Expr(call->args[0]);
  }
}

std::nullopt_t AffineScope::fail(const Expr& culprit, const std::string& why) {
  if (reason_.empty()) reason_ = fmt::format("'{}' {}", text_of(culprit), why);
  return std::nullopt;
}

std::optional<int> AffineScope::dim_of(const std::string& variable) const {
  const auto found = dims_.find(variable);
  return found == dims_.end() ? std::nullopt : std::optional<int>(found->second);
}

std::optional<isl::pw_aff> AffineScope::integer(const Expr& expr) {
  reason_.clear();
  pieces_ = true;
  return visit(expr);
}

std::optional<isl::pw_aff> AffineScope::single_piece(const Expr& expr) {
  reason_.clear();
  pieces_ = false;
  return visit(expr);
}

std::optional<isl::set> AffineScope::condition(const Expr& expr) {
  reason_.clear();
  pieces_ = true;
  return visit_condition(expr);
}

isl::set AffineScope::necessary(const Expr& expr, bool holds) {
  const Expr bare = without_markers(expr);
  if (const auto* negation = bare.as<ir::Not>()) return necessary(negation->a, !holds);
  const auto* conjunction = bare.as<ir::And>();
  const auto* disjunction = bare.as<ir::Or>();
  if (conjunction != nullptr || disjunction != nullptr) {
    const isl::set a = necessary(conjunction != nullptr ? conjunction->a : disjunction->a, holds);
    const isl::set b = necessary(conjunction != nullptr ? conjunction->b : disjunction->b, holds);
    return (conjunction != nullptr) == holds ? a.intersect(b) : a.unite(b).coalesce();
  }
  const std::optional<isl::set> exact = condition(bare);
  if (!exact) return universe_;
  return holds ? *exact : universe_.subtract(*exact).coalesce();
}

AffineScope::Function AffineScope::constant(std::int64_t value) const {
  return isl::manage(isl_pw_aff_val_on_domain(universe_.copy(), isl_val_int_from_si(universe_.ctx().get(), value)));
}

AffineScope::Function AffineScope::visit(const Expr& marked) {
  const Expr expr = without_markers(marked);
  if (!expr.type().is_int() && !expr.type().is_uint()) return fail(expr, "is not an integer");
  if (const auto value = constant_of(expr)) return constant(*value);
  if (const auto* n = expr.as<ir::Variable>()) return visit_variable(*n);
  if (const auto* n = expr.as<ir::Cast>()) {
    const bool plain = n->type.is_int() && n->type.bits() >= 32 && n->value.type().is_int();
    return plain ? visit(n->value) : fail(expr, "is a conversion that is not affine");
  }
  if (expr.type().is_uint()) return fail(expr, "is unsigned and may wrap around");
  const auto both = [&](const Expr& a, const Expr& b, auto&& combine) -> Function {
    const Function x = visit(a);
    const Function y = x ? visit(b) : std::nullopt;
    if (!y) return std::nullopt;
    return combine(*x, *y);
  };
  if (const auto* n = expr.as<ir::Add>()) return both(n->a, n->b, [](const auto& x, const auto& y) { return x.add(y); });
  if (const auto* n = expr.as<ir::Sub>()) return both(n->a, n->b, [](const auto& x, const auto& y) { return x.sub(y); });
  if (const auto* n = expr.as<ir::Mul>()) return visit_product(n->a, n->b);
  if (const auto* n = expr.as<ir::Div>()) return visit_quotient(n->a, n->b, false);
  if (const auto* n = expr.as<ir::Mod>()) return visit_quotient(n->a, n->b, true);
  if (const auto* n = expr.as<ir::Call>()) return visit_call(*n);
  if (!pieces_) return fail(expr, "has more than one affine piece");
  if (const auto* n = expr.as<ir::Min>()) return both(n->a, n->b, [](const auto& x, const auto& y) { return x.min(y); });
  if (const auto* n = expr.as<ir::Max>()) return both(n->a, n->b, [](const auto& x, const auto& y) { return x.max(y); });
  if (const auto* n = expr.as<ir::Select>()) return visit_select(*n);
  return fail(expr, "is not affine");
}

AffineScope::Function AffineScope::visit_variable(const ir::Variable& variable) {
  if (const auto dim = dim_of(variable.name)) return dim_function(universe_, *dim);
  if (const auto size = parameters_.sizes.find(variable.name); size != parameters_.sizes.end()) {
    return universe_.param_pw_aff_on_domain(size->second);
  }
  if (const auto alias = parameters_.aliases.find(variable.name); alias != parameters_.aliases.end()) return visit(alias->second);
  const Expr expr(&variable);
  if (parameters_.scalars.count(variable.name) != 0) {
    return fail(expr, "is a scalar argument: its value is unknown when loops are built (make it a size)");
  }
  if (variable.param.defined() && variable.param.is_buffer()) {
    return fail(expr, fmt::format("is a property of input '{}', whose extents were not declared", variable.param.name()));
  }
  return fail(expr, "is neither a variable of this definition nor a listed size");
}

AffineScope::Function AffineScope::visit_product(const Expr& a, const Expr& b) {
  const auto left = constant_of(a);
  const auto right = left ? std::nullopt : constant_of(b);
  const Function x = visit(left ? b : a);
  if (!x) return std::nullopt;
  if (left || right) return x->scale(static_cast<long>(left ? *left : *right));
  if (!visit(b)) return std::nullopt;
  return fail(a * b, "multiplies two unknowns, which is not affine");
}

AffineScope::Function AffineScope::visit_quotient(const Expr& a, const Expr& b, bool remainder) {
  const Function x = visit(a);
  if (!x) return std::nullopt;
  const auto divisor = constant_of(b);
  if (!divisor || *divisor <= 0)
    return fail(remainder ? a % b : a / b, "does not divide by a positive constant, which is not affine");
  if (remainder) return x->mod(static_cast<long>(*divisor));
  return x->scale_down(static_cast<long>(*divisor)).floor();
}

AffineScope::Function AffineScope::visit_select(const ir::Select& select) {
  const std::optional<isl::set> when = visit_condition(select.condition);
  const Function yes = when ? visit(select.true_value) : std::nullopt;
  const Function no = yes ? visit(select.false_value) : std::nullopt;
  if (!no) return std::nullopt;
  return yes->intersect_domain(*when).union_add(no->subtract_domain(*when));
}

AffineScope::Function AffineScope::visit_call(const ir::Call& call) {
  const Expr expr(&call);
  const bool reads = call.call_type == ir::Call::Halide || call.call_type == ir::Call::Image;
  return fail(expr, reads ? "depends on data" : "is a function call, which is not affine");
}

std::optional<isl::set> AffineScope::compare(const Expr& a, const Expr& b, isl::set (isl::pw_aff::*relation)(isl::pw_aff) const) {
  const Function x = visit(a);
  const Function y = x ? visit(b) : std::nullopt;
  if (!y) return std::nullopt;
  return ((*x).*relation)(*y);
}

std::optional<isl::set> AffineScope::visit_condition(const Expr& marked) {
  const Expr expr = without_markers(marked);
  if (ir::is_const_one(expr)) return universe_;
  if (ir::is_const_zero(expr)) return universe_.subtract(universe_);
  if (const auto* n = expr.as<ir::LE>()) return compare(n->a, n->b, &isl::pw_aff::le_set);
  if (const auto* n = expr.as<ir::LT>()) return compare(n->a, n->b, &isl::pw_aff::lt_set);
  if (const auto* n = expr.as<ir::GE>()) return compare(n->a, n->b, &isl::pw_aff::ge_set);
  if (const auto* n = expr.as<ir::GT>()) return compare(n->a, n->b, &isl::pw_aff::gt_set);
  if (const auto* n = expr.as<ir::EQ>()) return compare(n->a, n->b, &isl::pw_aff::eq_set);
  if (const auto* n = expr.as<ir::NE>()) return compare(n->a, n->b, &isl::pw_aff::ne_set);
  if (const auto* n = expr.as<ir::Not>()) {
    const auto inner = visit_condition(n->a);
    return inner ? std::optional<isl::set>(universe_.subtract(*inner)) : std::nullopt;
  }
  const auto both = [&](const Expr& a, const Expr& b, bool meet) -> std::optional<isl::set> {
    const auto x = visit_condition(a);
    const auto y = x ? visit_condition(b) : std::nullopt;
    if (!y) return std::nullopt;
    return meet ? x->intersect(*y) : x->unite(*y);
  };
  if (const auto* n = expr.as<ir::And>()) return both(n->a, n->b, true);
  if (const auto* n = expr.as<ir::Or>()) return both(n->a, n->b, false);
  if (const auto* n = expr.as<ir::Call>()) {
    const bool reads = n->call_type == ir::Call::Halide || n->call_type == ir::Call::Image;
    return fail(expr, reads ? "depends on data" : "is not an affine condition");
  }
  return fail(expr, "is not an affine condition");
}

}  // namespace nestor
