// Conversion by coefficients: isl's divs become floor divisions.
#include "codegen/tile/places/isl_convert.h"

#include "support/error.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/set.h>
#include <isl/val.h>

#include <cstdlib>

namespace nestor {
namespace {

std::int64_t integer(isl_val* value) {
  if (isl_val_is_int(value) != isl_bool_true) {
    isl_val_free(value);
    internal_error("an integer was expected in an affine expression");
  }
  const std::int64_t result = isl_val_get_num_si(value);
  isl_val_free(value);
  return result;
}

IntExpr parameter(const std::string& name, const DimNames& names) {
  if (names.fixed != nullptr) {
    if (const auto found = names.fixed->find(name); found != names.fixed->end()) return found->second;
  }
  return IntExpr::variable(name);
}

IntExpr scaled(std::int64_t coefficient, const IntExpr& term) { return IntExpr(coefficient) * term; }

/// Sum that reads well: a negative term is subtracted.
void accumulate(IntExpr& sum, std::int64_t coefficient, const IntExpr& term) {
  if (coefficient == 0) return;
  if (coefficient < 0 && !sum.is_constant(0)) {
    sum = sum - scaled(-coefficient, term);
  } else {
    sum = sum + scaled(coefficient, term);
  }
}

std::string parameter_name(isl_aff* affine, int position) { return isl_aff_get_dim_name(affine, isl_dim_param, position); }

/// denominator * affine, an integer combination of inputs, parameters and divs.
IntExpr numerator(isl_aff* affine, const DimNames& names) {
  IntExpr sum(0);
  const auto coefficient = [&](isl_dim_type type, int k) { return integer(isl_aff_get_coefficient_val(affine, type, k)); };
  for (int k = 0; k < isl_aff_dim(affine, isl_dim_in); ++k) {
    accumulate(sum, coefficient(isl_dim_in, k), IntExpr::variable(names.inputs.at(k)));
  }
  for (int k = 0; k < isl_aff_dim(affine, isl_dim_param); ++k) {
    if (const auto c = coefficient(isl_dim_param, k); c != 0) accumulate(sum, c, parameter(parameter_name(affine, k), names));
  }
  for (int k = 0; k < isl_aff_dim(affine, isl_dim_div); ++k) {
    const auto c = coefficient(isl_dim_div, k);
    if (c == 0) continue;
    const isl::aff div = isl::manage(isl_aff_get_div(affine, k));
    accumulate(sum, c, to_int_expr(div, names));
  }
  const auto constant = integer(isl_aff_get_constant_val(affine));
  if (constant == 0) return sum;
  return constant < 0 && !sum.is_constant(0) ? sum - IntExpr(-constant) : sum + IntExpr(constant);
}

struct Piece {
  isl::set domain;
  isl::aff value;
};

std::vector<Piece> pieces(const isl::pw_aff& function) {
  std::vector<Piece> out;
  isl_pw_aff_foreach_piece(
      function.get(),
      [](isl_set* set, isl_aff* value, void* user) {
        static_cast<std::vector<Piece>*>(user)->push_back({isl::manage(set), isl::manage(value)});
        return isl_stat_ok;
      },
      &out);
  return out;
}

/// min or max of the pieces' functions when it equals `function` on its domain.
IntExpr as_extremum(const isl::pw_aff& function, const std::vector<Piece>& parts, IntOp op, const DimNames& names) {
  isl::pw_aff extremum(parts[0].value);
  for (std::size_t k = 1; k < parts.size(); ++k) {
    const isl::pw_aff next(parts[k].value);
    extremum = op == IntOp::min ? extremum.min(next) : extremum.max(next);
  }
  const isl::pw_aff restricted = extremum.intersect_domain(function.domain());
  if (isl_pw_aff_is_equal(restricted.get(), function.get()) != isl_bool_true) return {};
  IntExpr result = to_int_expr(parts[0].value, names);
  for (std::size_t k = 1; k < parts.size(); ++k) result = IntExpr::make(op, {result, to_int_expr(parts[k].value, names)});
  return result;
}

IntExpr constraint_condition(isl_constraint* constraint, const DimNames& names) {
  const isl::aff affine = isl::manage(isl_constraint_get_aff(constraint));
  const IntExpr value = to_int_expr(affine, names);
  return IntExpr::make(isl_constraint_is_equality(constraint) == isl_bool_true ? IntOp::eq : IntOp::ge, {value, IntExpr(0)});
}

struct ConditionSink {
  const DimNames* names;
  IntExpr all{1};
};

IntExpr basic_condition(isl_basic_set* basic, const DimNames& names) {
  ConditionSink sink{&names};
  isl_basic_set_foreach_constraint(
      basic,
      [](isl_constraint* constraint, void* user) {
        auto* s = static_cast<ConditionSink*>(user);
        if (isl_constraint_is_div_constraint(constraint) != isl_bool_true)
          s->all = s->all && constraint_condition(constraint, *s->names);
        isl_constraint_free(constraint);
        return isl_stat_ok;
      },
      &sink);
  return sink.all;
}

}  // namespace

IntExpr to_int_expr(const isl::aff& affine, const DimNames& names) {
  isl_val* denominator_val = isl_aff_get_denominator_val(affine.get());
  const std::int64_t denominator = integer(denominator_val);
  if (denominator == 1) return numerator(affine.get(), names);
  const isl::aff whole = isl::manage(isl_aff_scale_val(affine.copy(), isl_val_int_from_si(affine.ctx().get(), denominator)));
  return floor_div(numerator(whole.get(), names), denominator);
}

IntExpr to_int_expr(const isl::pw_aff& function, const DimNames& names) {
  const std::vector<Piece> parts = pieces(function);
  if (parts.empty()) return 0;  // what is never computed may be any number
  if (parts.size() == 1) return to_int_expr(parts[0].value, names);
  for (const IntOp op : {IntOp::min, IntOp::max}) {
    if (IntExpr result = as_extremum(function, parts, op, names); result.defined()) return result;
  }
  IntExpr result = to_int_expr(parts.back().value, names);
  for (std::size_t k = parts.size() - 1; k-- > 0;) {
    const IntExpr condition = to_condition(parts[k].domain, names);
    result = condition.defined() ? IntExpr::make(IntOp::select, {condition, to_int_expr(parts[k].value, names), result})
                                 : to_int_expr(parts[k].value, names);
  }
  return result;
}

IntExpr to_condition(const isl::set& set, const DimNames& names) {
  const isl::set known = isl::manage(isl_set_compute_divs(isl_set_coalesce(set.copy())));
  IntExpr any(0);
  bool everything = false;
  known.foreach_basic_set([&](const isl::basic_set& basic) {
    const IntExpr condition = basic_condition(basic.get(), names);
    if (condition.is_constant(1)) everything = true;
    any = IntExpr::make(IntOp::logical_or, {any, condition});
  });
  return everything ? IntExpr() : any;
}

}  // namespace nestor
