// Bounds straight from the constraints of a projected relation; piecewise functions where that is not possible.
#include "codegen/tile/bounds.h"

#include "support/error.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/fixed_box.h>
#include <isl/map.h>
#include <isl/set.h>

#include <map>
#include <string>

namespace nestor {
namespace {

/// { [outer] -> [x] : low(outer) <= x <= high(outer) }
isl::map between(const isl::pw_aff& low, const isl::pw_aff& high) {
  isl_map* from = isl_map_from_pw_aff(low.copy());
  isl_map* to = isl_map_from_pw_aff(high.copy());
  isl_map* at_least = isl_map_lex_le(isl_space_range(isl_map_get_space(from)));
  isl_map* at_most = isl_map_lex_ge(isl_space_range(isl_map_get_space(to)));
  return isl::manage(isl_map_intersect(isl_map_apply_range(from, at_least), isl_map_apply_range(to, at_most)));
}

struct BoundSink {
  DimNames names;                                 ///< of the outer loops and of x, which no bound mentions
  int position = 0;                               ///< of x
  std::map<std::string, IntExpr> lowers, uppers;  ///< by text: no duplicates, and the same order in every op
  bool usable = true;

  IntExpr lower() const { return fold(lowers, IntOp::max); }
  IntExpr upper() const { return fold(uppers, IntOp::min); }

 private:
  static IntExpr fold(const std::map<std::string, IntExpr>& bounds, IntOp op) {
    IntExpr all;
    for (const auto& [text, bound] : bounds) all = all.defined() ? IntExpr::make(op, {all, bound}) : bound;
    return all;
  }
};

/// x >= bound or x < bound + 1 from one constraint; constraints without x do not bound it.
isl_stat add_bound(isl_constraint* constraint, void* user) {
  auto* sink = static_cast<BoundSink*>(user);
  const bool below =
      isl_constraint_is_lower_bound(constraint, isl_dim_set, static_cast<unsigned>(sink->position)) == isl_bool_true;
  const bool above =
      isl_constraint_is_upper_bound(constraint, isl_dim_set, static_cast<unsigned>(sink->position)) == isl_bool_true;
  if (isl_constraint_dim(constraint, isl_dim_div) > 0) sink->usable = false;
  if ((below || above) && sink->usable) {
    const isl::aff bound = isl::manage(isl_constraint_get_bound(constraint, isl_dim_set, sink->position));
    if (below) {
      const IntExpr low = to_int_expr(bound.ceil(), sink->names);
      sink->lowers.emplace(low.str(), low);
    }
    if (above) {
      const IntExpr high = to_int_expr(isl::manage(isl_aff_add_constant_si(isl_aff_floor(bound.copy()), 1)), sink->names);
      sink->uppers.emplace(high.str(), high);
    }
  }
  isl_constraint_free(constraint);
  return isl_stat_ok;
}

std::optional<BoundSink> bounds_from_constraints(const isl::map& values, const isl::set& known, const DimNames& names) {
  isl_map* simple = isl_map_coalesce(isl_map_gist_domain(values.copy(), known.copy()));
  BoundSink sink;
  sink.names = names;
  sink.names.inputs.push_back("x");
  sink.position = static_cast<int>(names.inputs.size());
  if (isl_map_n_basic_map(simple) == 1) {
    isl_basic_map* only = isl_basic_map_remove_redundancies(isl_map_simple_hull(isl_map_copy(simple)));
    isl_basic_set* flat = isl_basic_set_flatten(isl_basic_map_wrap(only));
    isl_basic_set_foreach_constraint(flat, add_bound, &sink);
    isl_basic_set_free(flat);
  }
  isl_map_free(simple);
  if (!sink.usable || sink.lowers.empty() || sink.uppers.empty()) return std::nullopt;
  return sink;
}

std::optional<std::int64_t> constant_extent(const isl::map& values) {
  isl_fixed_box* box = isl_map_get_range_simple_fixed_box_hull(values.get());
  std::optional<std::int64_t> extent;
  if (isl_fixed_box_is_valid(box) == isl_bool_true) {
    isl_multi_val* size = isl_fixed_box_get_size(box);
    isl_val* value = isl_multi_val_get_val(size, 0);
    extent = isl_val_get_num_si(value);
    isl_val_free(value);
    isl_multi_val_free(size);
  }
  isl_fixed_box_free(box);
  return extent;
}

}  // namespace

Interval bounds_of(const isl::map& values, const isl::set& known, const DimNames& names) {
  const isl::map whole = values.coalesce();
  Interval interval;
  interval.max_extent = constant_extent(whole);
  if (const auto bounds = bounds_from_constraints(whole, known, names)) {
    interval.lower = bounds->lower();
    interval.upper = bounds->upper();
    interval.filled = whole;
    return interval;
  }
  const isl::set outer = whole.domain();
  const auto simplified = [&](isl_pw_aff* f) {
    return isl::manage(isl_pw_aff_coalesce(isl_pw_aff_gist(f, outer.copy()))).intersect_domain(outer);
  };
  const isl::pw_aff low = simplified(isl_map_dim_min(whole.copy(), 0));
  const isl::pw_aff high = simplified(isl_map_dim_max(whole.copy(), 0));
  interval.lower = to_int_expr(low, names);
  interval.upper = to_int_expr(high, names) + IntExpr(1);
  interval.filled = between(low, high);
  return interval;
}

}  // namespace nestor
