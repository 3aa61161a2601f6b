// Bounds straight from the constraints of a projected relation; piecewise functions where that is not possible.
#include "codegen/tile/places/bounds.h"

#include "poly/isl/attempt.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/constraint.h>
#include <isl/fixed_box.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

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

using Bounds = std::map<std::string, IntExpr>;  ///< by text: no duplicates, and the same order in every op

IntExpr fold(const Bounds& bounds, IntOp op) {
  IntExpr all;
  for (const auto& [text, bound] : bounds) all = all.defined() ? IntExpr::make(op, {all, bound}) : bound;
  return all;
}

/// The bounds of x in one conjunction.
struct BoundSink {
  DimNames names;      ///< of the outer loops and of x, which no bound mentions
  isl::set low, high;  ///< { [outer, x] } x at or above all lower bounds; at or below all upper bounds
  Bounds lowers, uppers;
  int position() const { return static_cast<int>(names.inputs.size()) - 1; }
  bool splits_equalities = false;  ///< an equality bounds x on both sides; else it is left to who asks for exact bounds
  bool equated = false;
  bool usable = true;
};

/// x >= bound or x < bound + 1 from one constraint; constraints without x do not bound it.
isl_stat add_bound(isl_constraint* constraint, void* user) {
  auto* sink = static_cast<BoundSink*>(user);
  const auto x = static_cast<unsigned>(sink->position());
  const bool both = sink->splits_equalities && isl_constraint_is_equality(constraint) == isl_bool_true &&
                    isl_constraint_involves_dims(constraint, isl_dim_set, x, 1) == isl_bool_true;
  const bool below = both || isl_constraint_is_lower_bound(constraint, isl_dim_set, x) == isl_bool_true;
  const bool above = both || isl_constraint_is_upper_bound(constraint, isl_dim_set, x) == isl_bool_true;
  if (isl_constraint_dim(constraint, isl_dim_div) > 0) sink->usable = false;
  if ((below || above) && sink->usable) {
    sink->equated = sink->equated || isl_constraint_is_equality(constraint) == isl_bool_true;
    const isl::aff bound = isl::manage(isl_constraint_get_bound(constraint, isl_dim_set, sink->position()));
    if (below) {
      const IntExpr low = to_int_expr(bound.ceil(), sink->names);
      sink->lowers.emplace(low.str(), low);
      sink->low = isl::manage(isl_set_add_constraint(sink->low.release(), isl_constraint_copy(constraint)));
    }
    if (above) {
      const IntExpr high = to_int_expr(isl::manage(isl_aff_add_constant_si(isl_aff_floor(bound.copy()), 1)), sink->names);
      sink->uppers.emplace(high.str(), high);
      sink->high = isl::manage(isl_set_add_constraint(sink->high.release(), isl_constraint_copy(constraint)));
    }
  }
  isl_constraint_free(constraint);
  return isl_stat_ok;
}

isl_stat add_conjunction(isl_basic_set* conjunction, void* user) {
  auto& all = *static_cast<std::vector<BoundSink>*>(user);
  BoundSink sink = all.front();
  conjunction = isl_basic_set_remove_redundancies(conjunction);
  isl_basic_set_foreach_constraint(conjunction, add_bound, &sink);
  isl_basic_set_free(conjunction);
  all.push_back(std::move(sink));
  return isl_stat_ok;
}

/// The bounds of each conjunction of `values`; nothing when one of them has no plain bounds.
std::vector<BoundSink> bounds_of_conjunctions(const isl::map& values, const isl::set& known, const DimNames& names,
                                              bool split_equalities = false) {
  isl_map* simple = isl_map_coalesce(isl_map_gist_domain(values.copy(), known.copy()));
  if (isl_map_n_basic_map(simple) == 1) simple = isl_map_from_basic_map(isl_map_simple_hull(simple));
  isl_set* flat = isl_set_flatten(isl_map_wrap(simple));
  std::vector<BoundSink> sinks(1);
  sinks[0].names = names;
  sinks[0].splits_equalities = split_equalities;
  sinks[0].names.inputs.push_back("x");
  sinks[0].low = sinks[0].high = isl::manage(isl_set_universe(isl_set_get_space(flat)));
  isl_set_foreach_basic_set(flat, add_conjunction, &sinks);
  isl_set_free(flat);
  sinks.erase(sinks.begin());
  const bool usable = std::all_of(sinks.begin(), sinks.end(), [&](const BoundSink& sink) {
    return sink.usable && !sink.lowers.empty() && !sink.uppers.empty() && (sinks.size() == 1 || !sink.equated);
  });
  return usable ? sinks : std::vector<BoundSink>{};
}

/// { [outer] -> [x] : some value is at or below x, and some at or above it }
isl::map hull_of(const isl::map& values) {
  const isl::space range = values.range().space();
  const auto reaching = [&](isl_map* order) { return isl::manage(isl_map_apply_range(values.copy(), order)); };
  return reaching(isl_map_lex_le(range.copy())).intersect(reaching(isl_map_lex_ge(range.copy())));
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

/// { [outer] -> [x] } between the bounds of a conjunction.
isl::map filled_between(const BoundSink& bounds) {
  return isl::manage(isl_map_move_dims(isl_map_from_range(bounds.low.intersect(bounds.high).release()), isl_dim_in, 0,
                                       isl_dim_out, 0, static_cast<unsigned>(bounds.position())));
}

/// From the smallest lower to the largest upper bound of several conjunctions. Where only some of them have values that is more
/// than the smallest interval; nothing then, unless the constant extent stays the same.
std::optional<Interval> joined_interval(const std::vector<BoundSink>& parts, const isl::map& whole) {
  Bounds lowers, uppers;
  isl::set low = parts.at(0).low, high = parts.at(0).high;
  for (const BoundSink& part : parts) {
    const IntExpr lower = fold(part.lowers, IntOp::max), upper = fold(part.uppers, IntOp::min);
    lowers.emplace(lower.str(), lower);
    uppers.emplace(upper.str(), upper);
    low = low.unite(part.low);
    high = high.unite(part.high);
  }
  Interval interval{fold(lowers, IntOp::min), fold(uppers, IntOp::max), constant_extent(whole), {}};
  BoundSink all = parts[0];
  all.low = low;
  all.high = high;
  interval.filled = filled_between(all).intersect_domain(whole.domain()).coalesce();
  const bool same_extent = interval.max_extent && constant_extent(interval.filled) == interval.max_extent;
  if (!same_extent && !interval.filled.is_subset(hull_of(whole))) return std::nullopt;
  return interval;
}

/// Pieces that an exact bound may have as a choice by conditions, and as minima and maxima. More make an expression that costs more
/// than the iterations it saves, and sets that isl takes long for.
constexpr int kMostChoices = 2, kMostPieces = 6;
/// isl operations for an exact bound, many times what bounds of few pieces take.
constexpr std::uint64_t kExactBudget = 100'000;

bool chooses(const IntExpr& expr) {
  return expr.op() == IntOp::select || std::any_of(expr.args().begin(), expr.args().end(), chooses);
}

/// The smallest interval, as functions with few pieces; nothing where there are none.
std::optional<Interval> exact_interval(const isl::map& whole, const DimNames& names) {
  std::optional<Interval> result;
  const auto compute = [&] {
    const isl::set outer = whole.domain();
    const auto simplified = [&](isl_pw_aff* f) {
      return isl::manage(isl_pw_aff_coalesce(isl_pw_aff_gist(f, outer.copy()))).intersect_domain(outer);
    };
    const isl::pw_aff low = simplified(isl_map_dim_min(whole.copy(), 0));
    const isl::pw_aff high = simplified(isl_map_dim_max(whole.copy(), 0));
    if (low.n_piece() > kMostPieces || high.n_piece() > kMostPieces) return;
    const isl::map filled = between(low, high);
    const Interval interval{to_int_expr(low, names), to_int_expr(high, names) + IntExpr(1), constant_extent(whole), filled};
    const bool few =
        isl_map_n_basic_map(filled.get()) <= kMostChoices && low.n_piece() <= kMostChoices && high.n_piece() <= kMostChoices;
    if (few || !(chooses(interval.lower) || chooses(interval.upper))) result = interval;
  };
  if (!isl_attempt(kExactBudget, compute)) return std::nullopt;
  return result;
}

/// An interval around the values that linear constraints give, divisions left out; nothing when these do not bound it.
std::optional<Interval> loose_interval(const isl::map& whole, const DimNames& names) {
  isl_map* rational = isl_map_remove_divs(whole.copy());
  const isl::map simple = isl::manage(isl_map_from_basic_map(isl_map_simple_hull(rational)));
  const std::vector<BoundSink> parts = bounds_of_conjunctions(simple, isl::set::universe(whole.domain().space()), names, true);
  if (parts.size() != 1) return std::nullopt;
  const isl::map filled = filled_between(parts[0]);
  return Interval{fold(parts[0].lowers, IntOp::max), fold(parts[0].uppers, IntOp::min), constant_extent(filled), filled, filled};
}

/// Bounds that are minima and maxima of affine functions.
std::optional<Interval> plain_interval(const isl::map& whole, const isl::set& known, const DimNames& names) {
  const std::vector<BoundSink> parts = bounds_of_conjunctions(whole, known, names);
  if (parts.size() == 1)
    return Interval{fold(parts[0].lowers, IntOp::max), fold(parts[0].uppers, IntOp::min), constant_extent(whole), whole,
                    filled_between(parts[0])};
  return parts.empty() ? std::nullopt : joined_interval(parts, whole);
}

/// Bounds that are the same in all iterations of the outer loops, where a union of sets has no others; nothing: not even those are plain.
std::optional<Interval> uniform_interval(const isl::map& whole, const DimNames& names) {
  const isl::set values = isl::manage(isl_set_remove_divs(whole.range().release())).coalesce();
  const isl::map everywhere = isl::manage(isl_map_from_domain_and_range(whole.domain().release(), values.copy()));
  const std::vector<BoundSink> parts = bounds_of_conjunctions(everywhere, whole.domain(), names, true);
  return parts.empty() ? std::nullopt : joined_interval(parts, everywhere);
}

}  // namespace

Interval bounds_of(const isl::map& values, const isl::set& known, const DimNames& names, const std::optional<isl::map>& around) {
  const isl::map whole = values.coalesce();
  if (const auto plain = plain_interval(whole, known, names)) return *plain;
  if (const auto exact = exact_interval(whole, names)) return *exact;
  if (around) {
    const isl::map wider = around->coalesce();
    if (auto plain = plain_interval(wider, wider.domain(), names)) {
      plain->filled = plain->filled.intersect_domain(known);
      return *plain;
    }
  }
  if (const auto loose = loose_interval(whole, names)) return *loose;
  if (const auto uniform = uniform_interval(whole, names)) return *uniform;
  user_error("the iterations {} of a loop {}", isl_text(whole), kNoBounds);
}

}  // namespace nestor
