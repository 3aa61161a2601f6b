// A count is the length of an interval: the values of the lead's one reduced dim, without holes.
#include "codegen/proof/model/counts.h"

#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/time_order.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

namespace nestor::proof {
namespace {

/// The one dim of the lead in which instances that accumulate into one element differ.
int counted_dim(const Statement& lead, const isl::set& domain) {
  const isl::map write = lead.write.relation.intersect_domain(domain);
  const isl::map together = write.apply_range(write.reverse());
  int found = -1;
  for (int k = 0; k < static_cast<int>(lead.dims.size()); ++k) {
    const isl::map differ = isl::manage(isl_map_order_lt(together.copy(), isl_dim_in, k, isl_dim_out, k));
    if (is_empty(differ)) continue;
    if (found >= 0) throw OpenObligation(fmt::format("counts: {} reduces over more than one dim", lead.name));
    found = k;
  }
  if (found < 0) throw OpenObligation(fmt::format("counts: {} reduces over no dim", lead.name));
  return found;
}

/// { x -> [value of dim k] } from { x -> Statement[dims] }
isl::map only_dim(const isl::map& instances, int k) {
  const auto count = static_cast<unsigned>(isl_map_dim(instances.get(), isl_dim_out));
  isl_map* map = isl_map_reset_tuple_id(instances.copy(), isl_dim_out);
  map = isl_map_project_out(map, isl_dim_out, static_cast<unsigned>(k) + 1, count - static_cast<unsigned>(k) - 1);
  return isl::manage(isl_map_project_out(map, isl_dim_out, 0, static_cast<unsigned>(k)));
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

class Count {
 public:
  Count(const Run& run, const OpMember& member, const IntExpr& index, isl::map values)
      : run_(run), member_(member), index_(index), values_(values.coalesce()) {}

  void prove(bool none_when_empty) const {
    const isl::space range = isl::manage(isl_space_range(isl_map_get_space(values_.get())));
    const auto reach = [&](isl_map* order) { return isl::manage(isl_map_apply_range(values_.copy(), order)); };
    const isl::map between = reach(isl_map_lex_lt(range.copy())).intersect(reach(isl_map_lex_gt(range.copy())));
    expect(between.subtract(values_).domain(), "leaves points out");
    const isl::pw_aff low = isl::manage(isl_map_dim_min(values_.copy(), 0)),
                      high = isl::manage(isl_map_dim_max(values_.copy(), 0));
    const isl::pw_aff one = member_.space->value(IntExpr(1)), counted = member_.space->value(index_);
    const isl::pw_aff length = high.sub(low).add(one);
    const isl::set right = isl::manage(isl_pw_aff_eq_set(length.copy(), counted.copy()));
    expect(values_.domain().subtract(right), "is not the number of points");
    if (!none_when_empty) return;
    const isl::set some = member_.space->at_least(index_, IntExpr(1)).intersect(member_.instances);
    expect(some.subtract(values_.domain()), "counts points before there are any");
  }

 private:
  void expect(const isl::set& wrong, const std::string& what) const {
    expect_empty(wrong, member_.space->variables(), fmt::format("counts: '{}' in {} {}", index_.str(), title(run_), what));
  }

  const Run& run_;
  const OpMember& member_;
  const IntExpr& index_;
  isl::map values_;
};

}  // namespace

void prove_counts(const Subject& subject, const Composite& composite, const Run& lead, const Run& run, const OpMember& member,
                  const isl::map& lead_element, const std::vector<CountUse>& uses) {
  const Statement& statement = subject.model.nest().statement(composite.lead);
  const isl::set domain = statement.domain.intersect_params(subject.model.context());
  const int dim = counted_dim(statement, domain);
  const isl::map at_instances = lead_element.intersect_domain(member.instances);
  const isl::map all = at_instances.apply_range(statement.write.relation.intersect_domain(domain).reverse());
  if (shared_loops(lead, run) < lead.depth())
    throw BrokenObligation(fmt::format("counts: {} is not in the loops of {}", title(run), title(lead)));
  const isl::map instance = isl::manage(isl_map_from_multi_aff(lead.instance.copy())).intersect_domain(lead.instances);
  const isl::map pairs = all.apply_range(instance.reverse());  // { [run's loops, dims] -> [lead's loops, dims] }
  for (const CountUse& use : uses) {
    if (use.index < 0 || static_cast<std::size_t>(use.index) >= member.op->indices.size())
      throw BrokenObligation(fmt::format("counts: {} has no index {}", title(run), use.index));
    const bool before = use.count == kPointsBefore;
    const isl::map counted = use.count == kPointsTotal ? all : earlier_steps(pairs, lead.depth(), !before).apply_range(instance);
    Count(run, member, member.op->indices[use.index], only_dim(counted, dim)).prove(before);
  }
}

}  // namespace nestor::proof
