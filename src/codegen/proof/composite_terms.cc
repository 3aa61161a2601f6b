// Terms of composites: each is computed with the leading value that it is used with.
#include "codegen/proof/composite_steps.h"
#include "codegen/proof/model/counts.h"
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/time_order.h"
#include "codegen/proof/model/values.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

class TermProof {
 public:
  TermProof(const Subject& subject, const Composite& composite, const std::vector<StepOps>& steps)
      : subject_(subject), model_(subject.model), nest_(model_.nest()), composite_(composite), steps_(steps) {}

  void prove() const {
    for (const StepOps& step : steps_) {
      prove_uses(step);
      prove_views(step);
    }
    prove_matches();
  }

 private:
  [[noreturn]] void refute(const std::string& what) const {
    throw BrokenObligation(fmt::format("composite of {}: {}", composite_.lead, what));
  }

  /// A term is used while the leading value is the one it was computed with.
  void prove_uses(const StepOps& step) const {
    for (const Dependence& flow : subject_.dependences) {
      if (flow.kind != DependenceKind::flow || !is_mediator(composite_, flow.source) || flow.tensor == composite_.lead_tensor ||
          !is_member(composite_, flow.sink))
        continue;
      for (const Run& a : model_.runs()) {
        if (a.statement == nullptr || a.statement->name != flow.source || a.part != OpPart::points) continue;
        for (const Run& b : model_.runs()) {
          if (b.statement != nullptr && b.statement->name == flow.sink && b.part == OpPart::points) prove_use(step, flow, a, b);
        }
      }
    }
  }

  void prove_use(const StepOps& step, const Dependence& flow, const Run& a, const Run& b) const {
    isl_map* relation = isl_map_preimage_domain_multi_aff(flow.relation.copy(), a.instance.copy());
    relation = isl_map_preimage_range_multi_aff(relation, b.instance.copy());
    const isl::map pairs = isl::manage(relation).intersect_domain(a.instances).intersect_range(b.instances);
    const std::size_t depth = std::min(shared_loops(a, *step.lead), shared_loops(b, *step.lead));
    const int lead = step.lead->positions[depth];
    const bool same_side = shared_loops(a, b) >= depth && (a.positions[depth] < lead) == (b.positions[depth] < lead);
    if (same_side && is_empty(pairs.subtract(with_equal_loops(pairs, depth)))) return;
    if (!is_empty(pairs)) refute(fmt::format("{} uses terms of {} after the next step", title(b), title(a)));
  }

  /// Counts in the values of those who see the leading value through a view.
  void prove_views(const StepOps& step) const {
    for (const Run& run : model_.runs()) {
      if (run.statement == nullptr || run.part != OpPart::points || run.statement->name == composite_.lead ||
          !is_member(composite_, run.statement->name))
        continue;
      for (const OpMember& member : run.members) {
        std::vector<CountUse> counts;
        matches(member.op->value, viewed_value(subject_, *run.statement), counts);
        if (counts.empty()) continue;
        const isl::map lead_element = at_instances(lead_of(nest_, composite_, *run.statement), run);
        prove_counts(subject_, composite_, *step.lead, run, member, lead_element, counts);
      }
    }
  }

  /// A point's term is added after the point was: at once, where points are counted.
  void prove_matches() const {
    for (const Dependence& flow : subject_.dependences) {
      if (flow.kind != DependenceKind::flow || flow.reduction || flow.source != composite_.lead ||
          flow.tensor != composite_.lead_tensor || flow.sink == composite_.lead || !is_member(composite_, flow.sink))
        continue;
      const isl::map relation = isl::manage(isl_map_intersect_params(flow.relation.copy(), model_.context().copy()));
      const isl::map match = matching(relation, nest_.statement(flow.sink));
      const bool counted = counts_points(composite_);
      if (!relation.range().is_subset(match.range()) || (counted && !relation.domain().is_subset(match.domain())))
        refute(fmt::format("{} has terms of points that it has not seen", flow.sink));
      for (const StepOps& step : steps_) {
        for (const Run& run : model_.runs()) {
          if (run.statement == nullptr || run.statement->name != flow.sink || run.part != OpPart::points) continue;
          prove_match(step, run, match, counted);
        }
      }
    }
  }

  void prove_match(const StepOps& step, const Run& run, const isl::map& match, bool counted) const {
    isl_map* relation = isl_map_preimage_domain_multi_aff(match.copy(), step.lead->instance.copy());
    relation = isl_map_preimage_range_multi_aff(relation, run.instance.copy());
    const isl::map pairs = isl::manage(relation).intersect_domain(step.lead->instances).intersect_range(run.instances);
    if (const auto broken = out_of_order(pairs, *step.lead, run, OrderNeed::ordered))
      refute(fmt::format("{} has a term before its point is seen, for example {}", title(run),
                         sample_text(*broken, step.lead->space().variables(), run.space().variables())));
    if (counted && !is_empty(pairs.subtract(with_equal_loops(pairs, step.lead->depth()))))
      refute(fmt::format("{} adds a term in another step than its point", title(run)));
  }

  /// Pairs of the relation that read one element in common.
  isl::map matching(const isl::map& relation, const Statement& reader) const {
    isl::map result = relation;
    bool common = false;
    for (const Access& from : nest_.statement(composite_.lead).reads) {
      isl::map together;
      for (const Access& to : reader.reads) {
        if (to.tensor == from.tensor) together = united(together, from.relation.apply_range(to.relation.reverse()));
      }
      if (together.is_null()) continue;
      result = result.intersect(together);
      common = true;
    }
    return common ? result.coalesce() : relation.subtract(relation);
  }

  const Subject& subject_;
  const ProgramModel& model_;
  const Nest& nest_;
  const Composite& composite_;
  const std::vector<StepOps>& steps_;
};

}  // namespace

isl::map at_instances(const isl::map& relation, const Run& run) {
  return isl::manage(isl_map_preimage_domain_multi_aff(relation.copy(), run.instance.copy())).intersect_domain(run.instances);
}

isl::map lead_of(const Nest& nest, const Composite& composite, const Statement& reader) {
  isl::map all;
  for (const Access& read : reader.reads) {
    if (read.tensor == composite.lead_tensor) all = united(all, read.relation);
    for (const std::string& name : composite.mediators) {
      const Statement& mediator = nest.statement(name);
      if (read.tensor != mediator.write.tensor || name == reader.name) continue;
      const isl::map inner = lead_of(nest, composite, mediator);
      all = united(all, read.relation.apply_range(mediator.write.relation.reverse()).apply_range(inner));
    }
  }
  if (all.is_null())
    throw BrokenObligation(fmt::format("composite of {}: {} does not depend on it", composite.lead, reader.name));
  return all.coalesce();
}

void prove_terms(const Subject& subject, const Composite& composite, const std::vector<StepOps>& steps) {
  TermProof(subject, composite, steps).prove();
}

}  // namespace nestor::proof
