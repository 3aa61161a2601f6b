// Conversion of integer expressions, with minima, maxima and conditions as intersections and unions.
#include "codegen/proof/model/int_sets.h"

#include "codegen/proof/model/outcome.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>

namespace nestor::proof {
namespace {

isl::val number(std::int64_t value) { return isl::manage(isl_val_int_from_si(isl_context().get(), value)); }

std::int64_t divisor_of(const IntExpr& expr) {
  const auto value = expr.args()[1].as_constant();
  if (!value || *value <= 0) throw OpenObligation("'" + expr.str() + "' divides by something that is no positive number");
  return *value;
}

isl::set complement(const isl::set& set) { return isl::manage(isl_set_complement(set.copy())); }

bool is_condition(const IntExpr& expr) {
  switch (expr.op()) {
    case IntOp::ge:
    case IntOp::gt:
    case IntOp::eq:
    case IntOp::logical_and:
    case IntOp::logical_or:
    case IntOp::logical_not:
      return true;
    default:
      return false;
  }
}

}  // namespace

IntSpace::IntSpace(std::vector<std::string> variables, const isl::set& context) : variables_(std::move(variables)) {
  isl_space* params = isl_space_params(isl_set_get_space(context.get()));
  space_ =
      isl::manage(isl_space_add_dims(isl_space_set_from_params(params), isl_dim_set, static_cast<unsigned>(variables_.size())));
}

isl::set IntSpace::universe() const { return isl::manage(isl_set_universe(space_.copy())); }

isl::aff IntSpace::zero() const { return isl::manage(isl_aff_zero_on_domain(isl_local_space_from_space(space_.copy()))); }

isl::aff IntSpace::variable(const std::string& name) const {
  isl_local_space* local = isl_local_space_from_space(space_.copy());
  for (std::size_t k = variables_.size(); k-- > 0;) {
    if (variables_[k] == name) return isl::manage(isl_aff_var_on_domain(local, isl_dim_set, static_cast<unsigned>(k)));
  }
  const int parameter = isl_space_find_dim_by_name(space_.get(), isl_dim_param, name.c_str());
  if (parameter >= 0) return isl::manage(isl_aff_var_on_domain(local, isl_dim_param, static_cast<unsigned>(parameter)));
  isl_local_space_free(local);
  throw OpenObligation("variable '" + name + "' is neither a loop around it nor a size");
}

bool IntSpace::is_affine(const IntExpr& expr) const {
  switch (expr.op()) {
    case IntOp::constant:
    case IntOp::variable:
    case IntOp::add:
    case IntOp::sub:
    case IntOp::mul:
    case IntOp::floor_div:
    case IntOp::mod:
      return std::all_of(expr.args().begin(), expr.args().end(), [&](const IntExpr& arg) { return is_affine(arg); });
    default:
      return false;
  }
}

isl::aff IntSpace::affine(const IntExpr& expr) const {
  switch (expr.op()) {
    case IntOp::constant:
      return isl::manage(isl_aff_add_constant_val(zero().release(), number(expr.value()).release()));
    case IntOp::variable:
      return variable(expr.name());
    case IntOp::add:
      return affine(expr.args()[0]).add(affine(expr.args()[1]));
    case IntOp::sub:
      return affine(expr.args()[0]).sub(affine(expr.args()[1]));
    case IntOp::mul: {
      const isl::aff a = affine(expr.args()[0]), b = affine(expr.args()[1]);
      if (isl_aff_is_cst(a.get()) != isl_bool_true && isl_aff_is_cst(b.get()) != isl_bool_true)
        throw OpenObligation("'" + expr.str() + "' is not affine");
      return isl::manage(isl_aff_mul(a.copy(), b.copy()));
    }
    case IntOp::floor_div:
      return isl::manage(
          isl_aff_floor(isl_aff_scale_down_val(affine(expr.args()[0]).release(), number(divisor_of(expr)).release())));
    case IntOp::mod:
      return isl::manage(isl_aff_mod_val(affine(expr.args()[0]).release(), number(divisor_of(expr)).release()));
    default:
      internal_error("'{}' is no affine expression", expr.str());
  }
}

isl::pw_aff IntSpace::indicator(const isl::set& set) const {
  return isl::manage(isl_pw_aff_coalesce(isl_set_indicator_function(set.copy())));
}

isl::pw_aff IntSpace::value(const IntExpr& expr) const {
  if (is_affine(expr)) return isl::pw_aff(affine(expr));
  const auto arg = [&](std::size_t k) { return value(expr.args()[k]); };
  switch (expr.op()) {
    case IntOp::add:
      return arg(0).add(arg(1));
    case IntOp::sub:
      return arg(0).sub(arg(1));
    case IntOp::mul: {
      const isl::pw_aff a = arg(0), b = arg(1);
      if (isl_pw_aff_is_cst(a.get()) != isl_bool_true && isl_pw_aff_is_cst(b.get()) != isl_bool_true)
        throw OpenObligation("'" + expr.str() + "' is not affine");
      return isl::manage(isl_pw_aff_mul(a.copy(), b.copy()));
    }
    case IntOp::floor_div:
      return isl::manage(isl_pw_aff_floor(isl_pw_aff_scale_down_val(arg(0).release(), number(divisor_of(expr)).release())));
    case IntOp::mod:
      return isl::manage(isl_pw_aff_mod_val(arg(0).release(), number(divisor_of(expr)).release()));
    case IntOp::min:
      return arg(0).min(arg(1));
    case IntOp::max:
      return arg(0).max(arg(1));
    case IntOp::select:
      return isl::manage(
          isl_pw_aff_coalesce(isl_pw_aff_cond(indicator(where(expr.args()[0])).release(), arg(1).release(), arg(2).release())));
    default:
      return indicator(where(expr));
  }
}

isl::set IntSpace::nonnegative(const IntExpr& expr) const {
  if (is_affine(expr)) {
    const isl::aff function = affine(expr);
    // Where there are no dims isl does not see that a set with the constraint -1 >= 0 is empty.
    if (isl_aff_is_cst(function.get()) == isl_bool_true) {
      const isl::val constant = isl::manage(isl_aff_get_constant_val(function.get()));
      return isl_val_is_neg(constant.get()) == isl_bool_true ? isl::manage(isl_set_empty(space_.copy())) : universe();
    }
    return isl::manage(isl_set_from_basic_set(isl_basic_set_from_constraint(isl_inequality_from_aff(function.copy()))));
  }
  const isl::pw_aff function = value(expr);
  return isl::manage(isl_pw_aff_nonneg_set(function.copy()));
}

isl::set IntSpace::at_least(const IntExpr& a, const IntExpr& b) const {
  const auto of_a = [&](std::size_t k) { return at_least(a.args()[k], b); };
  const auto of_b = [&](std::size_t k) { return at_least(a, b.args()[k]); };
  if (a.op() == IntOp::min) return of_a(0).intersect(of_a(1));
  if (a.op() == IntOp::max) return of_a(0).unite(of_a(1));
  if (b.op() == IntOp::max) return of_b(0).intersect(of_b(1));
  if (b.op() == IntOp::min) return of_b(0).unite(of_b(1));
  if (a.op() == IntOp::select) return where(a.args()[0]).intersect(of_a(1)).unite(where_not(a.args()[0]).intersect(of_a(2)));
  if (b.op() == IntOp::select) return where(b.args()[0]).intersect(of_b(1)).unite(where_not(b.args()[0]).intersect(of_b(2)));
  return nonnegative(a - b);
}

isl::set IntSpace::equal(const IntExpr& a, const IntExpr& b) const { return at_least(a, b).intersect(at_least(b, a)); }

isl::set IntSpace::where(const IntExpr& condition) const {
  const std::vector<IntExpr>& args = condition.args();
  switch (condition.op()) {
    case IntOp::constant:
      return condition.value() != 0 ? universe() : isl::manage(isl_set_empty(space_.copy()));
    case IntOp::ge:
      return at_least(args[0], args[1]);
    case IntOp::gt:
      return at_least(args[0], args[1] + IntExpr(1));
    case IntOp::eq:
      return equal(args[0], args[1]);
    case IntOp::logical_and:
      return where(args[0]).intersect(where(args[1]));
    case IntOp::logical_or:
      return where(args[0]).unite(where(args[1]));
    case IntOp::logical_not:
      return where_not(args[0]);
    default:
      return complement(isl::manage(isl_pw_aff_zero_set(value(condition).release())));
  }
}

isl::set IntSpace::where_not(const IntExpr& condition) const {
  const std::vector<IntExpr>& args = condition.args();
  switch (condition.op()) {
    case IntOp::ge:
      return at_least(args[1], args[0] + IntExpr(1));
    case IntOp::gt:
      return at_least(args[1], args[0]);
    case IntOp::logical_and:
      return where_not(args[0]).unite(where_not(args[1]));
    case IntOp::logical_or:
      return where_not(args[0]).intersect(where_not(args[1]));
    case IntOp::logical_not:
      return where(args[0]);
    default:
      return is_condition(condition) ? complement(where(condition))
                                     : isl::manage(isl_pw_aff_zero_set(value(condition).release()));
  }
}

}  // namespace nestor::proof
