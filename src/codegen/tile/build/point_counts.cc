// Counts from intervals: the row's own ones, of which one is cut at the ends of the tile. What is not such a box is refused, by isl.
#include "codegen/tile/build/point_counts.h"

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>
#include <optional>

namespace nestor {
namespace {

/// { [outer, inner] -> [value of dim `dim`] } of the statement.
isl::map dim_value(const StatementPlan& plan, int dim) {
  return isl::manage(isl_map_from_aff(isl_multi_aff_get_aff(plan.instance.get(), dim)));
}

/// { X -> [a, b] } from { X -> [a] } and { X -> [b] }
isl::map joined(const isl::map& a, const isl::map& b) {
  return a.is_null() ? b : isl::manage(isl_map_flat_range_product(a.copy(), b.copy()));
}

/// { [outer, inner] -> [values of the dims] }
isl::map dim_values(const StatementPlan& plan, const std::vector<int>& dims) {
  isl::map values;
  for (const int dim : dims) values = joined(values, dim_value(plan, dim));
  return values;
}

/// { X -> [r] } of index k of { X -> [r, ..] }
isl::map only_index(const isl::map& map, std::size_t k) {
  const auto count = static_cast<std::size_t>(isl_map_dim(map.get(), isl_dim_out));
  isl_map* only =
      isl_map_project_out(map.copy(), isl_dim_out, static_cast<unsigned>(k) + 1, static_cast<unsigned>(count - k) - 1);
  return isl::manage(isl_map_project_out(only, isl_dim_out, 0, static_cast<unsigned>(k)));
}

isl::map without_inner(const StatementPlan& plan, const isl::map& map) {
  return isl::manage(isl_map_project_out(map.copy(), isl_dim_in, static_cast<unsigned>(plan.outer.size()),
                                         static_cast<unsigned>(plan.inner.size())));
}

isl::pw_aff extreme(const isl::map& map, bool low) {
  return isl::manage(isl_pw_aff_coalesce(low ? isl_map_dim_min(map.copy(), 0) : isl_map_dim_max(map.copy(), 0)));
}

isl::map as_map(const isl::pw_aff& function) { return isl::manage(isl_map_from_pw_aff(function.copy())); }

/// { X -> [r] : low(X) <= r <= high(X) }
isl::map interval(const isl::pw_aff& low, const isl::pw_aff& high) {
  const isl::map above = as_map(low).apply_range(isl::map(isl_context(), "{ [a] -> [b] : b >= a }"));
  return above.intersect(as_map(high).apply_range(isl::map(isl_context(), "{ [a] -> [b] : b <= a }")));
}

/// { [outer] -> [outer]' } : the second one runs before.
isl::map earlier(std::size_t loops) {
  return isl::manage(isl_map_lex_gt(isl_space_set_alloc(isl_context().get(), 0, static_cast<unsigned>(loops))));
}

/// { [outer] -> [Element -> [r, ..]] } lead points that `inner`, { [outer] -> [inner] }, executes.
isl::map executed(const StatementPlan& lead, const std::vector<int>& reduced, const isl::map& inner) {
  const isl::set points = isl::manage(isl_set_flatten(isl_map_wrap(inner.copy())));
  const isl::map element = isl::manage(isl_map_from_multi_aff(lead.instance.copy())).apply_range(lead.statement->write.relation);
  return without_inner(lead, element.range_product(dim_values(lead, reduced)).intersect_domain(points));
}

/// The function of an element as one of the loops around the statement whose `row` it is.
isl::pw_aff over_loops(const StatementPlan& statement, const isl::map& row, const isl::pw_aff& function) {
  const isl::map named = isl::manage(isl_map_set_tuple_id(isl_map_from_multi_aff(statement.instance.copy()), isl_dim_out,
                                                          isl_map_get_tuple_id(row.get(), isl_dim_in)));
  isl_pw_multi_aff* element = isl_pw_multi_aff_from_map(named.apply_range(row).release());
  return isl::manage(isl_pw_aff_pullback_pw_multi_aff(function.copy(), element));
}

/// { [outer] -> [x] } over all loops of a statement, of which `outer` are the first.
isl::pw_aff lifted(const isl::pw_aff& function, const isl::set& loops) {
  const int all = isl_set_dim(loops.get(), isl_dim_set), outer = isl_pw_aff_dim(function.get(), isl_dim_in);
  isl_multi_aff* project = isl_multi_aff_identity(isl_space_map_from_set(isl_set_get_space(loops.get())));
  project = isl_multi_aff_drop_dims(project, isl_dim_out, static_cast<unsigned>(outer), static_cast<unsigned>(all - outer));
  return isl::manage(isl_pw_aff_pullback_multi_aff(function.copy(), project));
}

/// { [outer, inner] -> [x] } without the dims at `positions`: { points } -> x on `region`, of which every value of these has the same.
/// Null if there are several.
isl::pw_aff without_dims(const isl::pw_aff& function, const isl::set& region, const std::vector<unsigned>& positions) {
  isl_map* values = as_map(function).intersect_domain(region).release();
  for (const unsigned position : positions) values = isl_map_eliminate(values, isl_dim_in, position, 1);
  const isl::map all = isl::manage(values);
  return isl_map_is_single_valued(all.get()) == isl_bool_true ? extreme(all, false) : isl::pw_aff();
}

isl::set without_dims(const isl::set& points, const std::vector<unsigned>& positions) {
  isl_set* all = points.copy();
  for (const unsigned position : positions) all = isl_set_eliminate(all, isl_dim_set, position, 1);
  return isl::manage(all);
}

isl::pw_aff simplified(const isl::pw_aff& function, const isl::set& domain) {
  return isl::manage(isl_pw_aff_coalesce(isl_pw_aff_gist(function.copy(), domain.copy())));
}

}  // namespace

PointCounter::PointCounter(const ProgramPlan& plan, const Composite& composite, const OpBox& lead_box)
    : plan_(plan), composite_(composite), lead_(plan.plan(composite.lead)), box_(lead_box) {
  reduced_ = reduced_dims(*lead_.statement);
  if (reduced_.empty()) refuse("its reduction runs over no dim");
  rows_ = executed(lead_, reduced_, lead_.points).range().unwrap().coalesce();
  const isl::set points = isl::manage(isl_set_flatten(isl_map_wrap(box_.points.copy())));
  for (std::size_t k = 0; k < reduced_.size(); ++k) {
    const isl::map rows = only_index(rows_, k).coalesce();
    const isl::map tile = without_inner(lead_, dim_value(lead_, reduced_[k]).intersect_domain(points)).coalesce();
    ranges_.push_back({reduced_[k], rows, extreme(rows, true), extreme(rows, false), extreme(tile, true), extreme(tile, false)});
  }
  check_rows();
  check_tiles();
}

void PointCounter::refuse(const std::string& reason) const {
  user_error(
      "{} and what follows it accumulate together and count the points of {}, but {}. Leave out apply_rule({}, {}), or compute "
      "{} "
      "before the loop that its readers share with it",
      composite_.lead, composite_.lead_tensor, reason, composite_.rule, composite_.lead, composite_.lead);
}

void PointCounter::check_rows() const {
  const isl::map points = isl::manage(isl_map_from_multi_aff(lead_.instance.copy()))
                              .apply_range(lead_.statement->write.relation)
                              .range_product(dim_values(lead_, reduced_))
                              .intersect_domain(lead_.loops.range());
  isl::map box;
  for (const Range& range : ranges_) box = joined(box, interval(range.first, range.last));
  if (!points.is_injective() || !box.is_subset(rows_))
    refuse("its points are not one interval for each element: their number is not that of the interval");
}

/// The range that tiles cut: of all others, they have the whole of each of their rows.
std::size_t PointCounter::moving_range(const isl::map& elements) const {
  std::optional<std::size_t> moving;
  for (std::size_t k = 0; k < ranges_.size(); ++k) {
    const Range& range = ranges_[k];
    const isl::map tile = interval(range.low, range.high);
    const isl::map any = isl::manage(isl_map_universe(isl_map_get_space(tile.get())));
    const isl::map all = elements.range_product(any).intersect_range(range.rows.wrap());
    if (all.is_subset(elements.range_product(tile))) continue;
    if (moving) refuse("its tiles cut several of the dims that its reduction runs over");
    moving = k;
  }
  return moving.value_or(0);
}

void PointCounter::check_tiles() {
  const isl::map elements = touched_by(lead_, lead_.statement->write, box_.hull);
  const isl::set all = rows_.wrap();
  const auto in_rows = [&](const isl::map& values) { return elements.range_product(values).intersect_range(all); };
  const isl::map now = executed(lead_, reduced_, box_.points);
  isl::map tile, any, below;
  for (const Range& range : ranges_) tile = joined(tile, interval(range.low, range.high));
  if (!in_rows(tile).is_subset(now)) refuse("a tile does not take the same stretch of points from each of its rows");
  if (ranges_.size() > 1) moving_ = moving_range(elements);
  // What ran before belongs to the rows of this tile and lies below it.
  const isl::map ran = earlier(lead_.outer.size()).apply_range(executed(lead_, reduced_, lead_.points));
  for (std::size_t k = 0; k < ranges_.size(); ++k) {
    const isl::map low = as_map(ranges_[k].low);
    const isl::map anything = isl::manage(isl_map_universe(isl_map_get_space(low.get())));
    any = joined(any, anything);
    below = joined(below, k == moving_ ? low.apply_range(isl::map(isl_context(), "{ [a] -> [b] : b < a }")) : anything);
  }
  if (!in_rows(below).is_equal(ran.intersect(in_rows(any)))) refuse("tiles of a row do not run from its first point to its last");
}

PointCounts PointCounter::at(const StatementPlan& statement, const isl::map& row, const isl::set& asked,
                             const std::vector<std::string>& absent) const {
  if (shared_outer_loops(statement, lead_) != lead_.outer.size())
    refuse(fmt::format("{} is not inside all loops of {}", statement.statement->name, composite_.lead));
  const DimNames names = statement.all_names(plan_), outer = lead_.outer_dim_names(plan_);
  const isl::set tiles = box_.points.domain();
  std::vector<unsigned> dropped;
  for (std::size_t k = 0; k < names.inputs.size(); ++k) {
    if (std::find(absent.begin(), absent.end(), names.inputs[k]) != absent.end()) dropped.push_back(static_cast<unsigned>(k));
  }
  const auto over_rest = [&](const isl::pw_aff& end) {
    const isl::pw_aff function = over_loops(statement, row, end);
    if (dropped.empty()) return function;
    const isl::pw_aff rest = without_dims(function, asked, dropped);
    if (rest.is_null())
      refuse(fmt::format("several rows of it belong to one element that {} adds to", statement.statement->name));
    return rest;
  };
  PointCounts counts;
  for (std::size_t k = 0; k < ranges_.size(); ++k) {
    const Range& range = ranges_[k];
    const isl::pw_aff first = over_rest(range.first), last = over_rest(range.last);
    const isl::set region = dropped.empty() ? asked : without_dims(asked, dropped);
    const isl::set counted = first.domain();
    const auto text = [&](const isl::pw_aff& f) { return to_int_expr(simplified(f, region.intersect(counted)), names); };
    const IntExpr start = text(first);
    IntExpr total = text(last) - start + IntExpr(1);
    const bool all_rows = region.is_subset(counted);
    if (!all_rows) total = IntExpr::make(IntOp::select, {to_condition(counted.gist(region), names), total, IntExpr(0)});
    counts.total.push_back(total);
    if (k != moving_) {
      counts.before.push_back(total);
      counts.through.push_back(total);
      continue;
    }
    const IntExpr low = to_int_expr(simplified(range.low, tiles), outer),
                  high = to_int_expr(simplified(range.high, tiles), outer);
    // A row may begin behind the tile, or have ended before it.
    const isl::pw_aff below = lifted(range.low, region), above = lifted(range.high, region);
    const auto holds = [&](const isl::set& where) { return all_rows && region.is_subset(where); };
    const auto clamped = [&](const IntExpr& count, bool not_below, bool not_above) {
      const IntExpr bounded = not_above ? count : min(total, count);
      return not_below ? bounded : max(IntExpr(0), bounded);
    };
    const isl::pw_aff after = above.add_constant(1L);
    const isl::pw_aff end = last.add_constant(1L);
    counts.before.push_back(clamped(low - start, holds(below.ge_set(first)), holds(below.le_set(end))));
    counts.through.push_back(clamped(high - start + IntExpr(1), holds(after.ge_set(first)), holds(after.le_set(end))));
  }
  return counts;
}

}  // namespace nestor
