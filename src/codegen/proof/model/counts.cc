// A count is the product of the lengths of intervals, one for each reduced dim of the lead: its points are all combinations, without holes.
#include "codegen/proof/model/counts.h"

#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/time_order.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

/// The dims of the lead in which instances that accumulate into one element differ.
std::vector<int> counted_dims(const Statement& lead, const isl::set& domain) {
  const isl::map write = lead.write.relation.intersect_domain(domain);
  const isl::map together = write.apply_range(write.reverse());
  std::vector<int> found;
  for (int k = 0; k < static_cast<int>(lead.dims.size()); ++k) {
    const isl::map differ = isl::manage(isl_map_order_lt(together.copy(), isl_dim_in, k, isl_dim_out, k));
    if (!is_empty(differ)) found.push_back(k);
  }
  if (found.empty()) throw OpenObligation(fmt::format("counts: {} reduces over no dim", lead.name));
  return found;
}

/// { x -> [values of the dims] } from { x -> Statement[dims] }; `dims` in order.
isl::map only_dims(const isl::map& instances, const std::vector<int>& dims) {
  isl_map* map = isl_map_reset_tuple_id(instances.copy(), isl_dim_out);
  for (int k = isl_map_dim(instances.get(), isl_dim_out); k-- > 0;) {
    if (std::find(dims.begin(), dims.end(), k) == dims.end())
      map = isl_map_project_out(map, isl_dim_out, static_cast<unsigned>(k), 1);
  }
  return isl::manage(map);
}

/// Pairs whose first `depth` dims are in lexicographic order, the range's before the domain's, or also equal.
isl::map earlier_steps(const isl::map& pairs, std::size_t depth, bool or_equal) {
  isl::map result = or_equal ? with_equal_loops(pairs, depth) : pairs.subtract(pairs);
  for (std::size_t k = 0; k < depth; ++k) {
    const int at = static_cast<int>(k);
    result = result.unite(isl::manage(isl_map_order_gt(with_equal_loops(pairs, k).release(), isl_dim_in, at, isl_dim_out, at)));
  }
  return result;
}

/// The count of one use: of `points`, { [loops, dims] -> Lead[dims] }, along the counted dims.
class Count {
 public:
  Count(const Run& run, const OpMember& member, const CountUse& use, const isl::map& points, const std::vector<int>& dims)
      : run_(run), member_(member), use_(use), points_(only_dims(points, dims).coalesce()) {
    for (const int dim : dims) along_.push_back(only_dims(points, {dim}).coalesce());
  }

  void prove(bool none_when_empty) const {
    prove_box();
    for (std::size_t k = 0; k < along_.size(); ++k) prove_length(along_[k], index(k));
    if (none_when_empty) prove_none();
  }

 private:
  const IntExpr& index(std::size_t k) const { return member_.op->indices[static_cast<std::size_t>(use_.factors[k])]; }

  /// All combinations of the values along each dim are points.
  void prove_box() const {
    if (along_.size() == 1) return;
    isl::map box = along_[0];
    for (std::size_t k = 1; k < along_.size(); ++k)
      box = isl::manage(isl_map_flat_range_product(box.release(), along_[k].copy()));
    expect(box.subtract(points_).domain(), "leaves combinations of points out");
  }

  void prove_length(const isl::map& values, const IntExpr& length) const {
    const isl::space range = isl::manage(isl_space_range(isl_map_get_space(values.get())));
    const auto reach = [&](isl_map* order) { return isl::manage(isl_map_apply_range(values.copy(), order)); };
    const isl::map between = reach(isl_map_lex_lt(range.copy())).intersect(reach(isl_map_lex_gt(range.copy())));
    expect(between.subtract(values).domain(), "leaves points out");
    const isl::pw_aff low = isl::manage(isl_map_dim_min(values.copy(), 0)), high = isl::manage(isl_map_dim_max(values.copy(), 0));
    const isl::pw_aff one = member_.space->value(IntExpr(1)), counted = member_.space->value(length);
    const isl::set right = isl::manage(isl_pw_aff_eq_set(high.sub(low).add(one).release(), counted.copy()));
    expect(values.domain().subtract(right), "is not the number of points");
  }

  /// Where there are no points the product is not above 0: no factor is below it, and not all are above.
  void prove_none() const {
    isl::set some = member_.instances.subtract(points_.domain());
    const isl::set none = some;
    for (std::size_t k = 0; k < along_.size(); ++k) {
      some = some.intersect(member_.space->at_least(index(k), IntExpr(1)));
      if (along_.size() > 1)
        expect(none.subtract(member_.space->at_least(index(k), IntExpr(0))), "is below 0 before there are any points");
    }
    expect(some, "counts points before there are any");
  }

  void expect(const isl::set& wrong, const std::string& what) const {
    std::string text;
    for (std::size_t k = 0; k < along_.size(); ++k) text += (k == 0 ? "" : " * ") + index(k).str();
    expect_empty(wrong, member_.space->variables(), fmt::format("counts: '{}' in {} {}", text, title(run_), what));
  }

  const Run& run_;
  const OpMember& member_;
  const CountUse& use_;
  isl::map points_;              ///< { [loops, dims] -> [values] } of all counted dims
  std::vector<isl::map> along_;  ///< { [loops, dims] -> [value] } of each counted dim
};

}  // namespace

void prove_counts(const Subject& subject, const Composite& composite, const Run& lead, const Run& run, const OpMember& member,
                  const isl::map& lead_element, const std::vector<CountUse>& uses) {
  const Statement& statement = subject.model.nest().statement(composite.lead);
  const isl::set domain = statement.domain.intersect_params(subject.model.context());
  const std::vector<int> dims = counted_dims(statement, domain);
  const isl::map at_instances = lead_element.intersect_domain(member.instances);
  const isl::map all = at_instances.apply_range(statement.write.relation.intersect_domain(domain).reverse());
  if (shared_loops(lead, run) < lead.depth())
    throw BrokenObligation(fmt::format("counts: {} is not in the loops of {}", title(run), title(lead)));
  const isl::map instance = isl::manage(isl_map_from_multi_aff(lead.instance.copy())).intersect_domain(lead.instances);
  const isl::map pairs = all.apply_range(instance.reverse());  // { [run's loops, dims] -> [lead's loops, dims] }
  for (const CountUse& use : uses) {
    if (use.factors.size() != dims.size())
      throw OpenObligation(fmt::format("counts: {} has {} factors for {} dims", title(run), use.factors.size(), dims.size()));
    for (const int index : use.factors) {
      if (index < 0 || static_cast<std::size_t>(index) >= member.op->indices.size())
        throw BrokenObligation(fmt::format("counts: {} has no index {}", title(run), index));
    }
    const bool before = use.count == kPointsBefore;
    const isl::map counted = use.count == kPointsTotal ? all : earlier_steps(pairs, lead.depth(), !before).apply_range(instance);
    Count(run, member, use, counted, dims).prove(before);
  }
}

}  // namespace nestor::proof
