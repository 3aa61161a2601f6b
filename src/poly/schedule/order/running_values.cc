// Relaxed dependences of composites.
//
// Let m be accumulated by the lead and r by a follower whose terms depend on m. The composite theorem (docs/algebra.md)
// makes (m, r) one reduction over the points: a step of it adds a set of points to m, corrects r from the old m to the new
// one and then adds the same points' terms, computed with the new m, to r. So the full dependence lead -> reader of m may
// be given up if every iteration of the loops that all parts share is such a step:
//   1. within one iteration, the lead's points come before the readers that use them;
//   2. the points of an iteration's readers were added to m in this iteration (or an earlier one, where the correction does
//      not count points: a maximum over more points is as good);
//   3. a term is used by its follower in the iteration that computed it: later, r may stand for another m;
//   4. nothing else sees a term, as terms are only right relative to the m of their iteration;
//   5. the iterations run one after the other.
#include "poly/schedule/order/running_values.h"

#include <isl/map.h>

#include <algorithm>

#include "poly/nest/composite_parts.h"
#include "support/error.h"

namespace nestor {
namespace {

/// Condition 4. The name of a statement that sees a term without being corrected, or nothing.
std::optional<std::string> outside_reader(const Nest& nest, const Composite& composite) {
  for (const std::string& mediator : composite.mediators) {
    const Tensor& tensor = nest.tensor(nest.statement(mediator).write.tensor);
    if (tensor.role == TensorRole::output) return "the caller (" + tensor.name + " is an output)";
    for (const Statement& statement : nest.statements) {
      if (!reads_tensor(statement, tensor.name)) continue;
      if (!is_mediator(composite, statement.name) && !is_follower(composite, statement.name)) return statement.name;
    }
  }
  return std::nullopt;
}

/// Judges one composite for one order.
class CompositeJudge {
 public:
  CompositeJudge(OrderChecker& checker, std::size_t which)
      : checker_(checker),
        facts_(*checker.data().facts),
        composite_(facts_.composites[which]),
        relaxed_(facts_.relaxed(which)),
        depth_(shared_by_all(composite_, checker.index())) {}

  /// The first full dependence that does not hold: without one the composite is not needed.
  std::optional<Violation> need() {
    for (const RelaxedDependence& relaxed : relaxed_) {
      auto broken = checker_.check_relation(relation(relaxed), composite_.lead, relaxed.reader, DependenceClass::ordinary, {});
      if (!broken) continue;
      broken->dependence = relaxed.dependence;
      return broken;
    }
    return std::nullopt;
  }

  /// Why the relaxation is not allowed; empty when it is.
  std::string objection() {
    if (depth_ == 0) return "its statements share no loop";
    if (const auto reader = outside_reader(facts_.nest, composite_)) {
      return *reader + " sees terms that hold for a running value only";
    }
    for (const RelaxedDependence& relaxed : relaxed_) {
      std::string reason = objection_to(relaxed);
      if (!reason.empty()) return reason;
    }
    return terms_used_late();
  }

 private:
  const isl::map& relation(const RelaxedDependence& relaxed) const { return facts_.dependences()[relaxed.dependence].relation; }

  std::string objection_to(const RelaxedDependence& relaxed) {
    const std::string& reader = relaxed.reader;
    const OrderChecker::Window inside{depth_, SIZE_MAX, true};
    if (checker_.check_relation(relation(relaxed), composite_.lead, reader, DependenceClass::ordinary, inside)) {
      return fmt::format("within an iteration of the loops they share, {} must come before {}", composite_.lead, reader);
    }
    if (const std::string loop = concurrent_loop(relaxed); !loop.empty()) {
      return fmt::format("loop {} runs parts of the reduction at the same time", loop);
    }
    const bool exact = counts_points(composite_);
    if (!relaxed.readers_matched || (exact && !relaxed.leads_matched)) {
      return fmt::format("{} and {} do not read the same elements", composite_.lead, reader);
    }
    const OrderChecker::Window shared{0, depth_ - 1, false};
    const bool together =
        exact ? checker_.same_iteration(relaxed.match, composite_.lead, reader, depth_)
              : !checker_.check_relation(relaxed.match, composite_.lead, reader, DependenceClass::ordinary, shared);
    if (together) return "";
    return fmt::format("{} must run {} the iteration in which {} uses the same element", composite_.lead,
                       exact ? "in" : "in or before", reader);
  }

  /// Condition 5: the shared loop, if any, whose concurrent iterations the dependence would cross.
  std::string concurrent_loop(const RelaxedDependence& relaxed) {
    const std::vector<const TreeNode*>& loops = checker_.index().loops(composite_.lead);
    for (std::size_t k = 0; k < depth_; ++k) {
      if (!is_concurrent(loops[k]->loop_kind)) continue;
      const OrderChecker::Window at{k, k, false};
      if (checker_.check_relation(relation(relaxed), composite_.lead, relaxed.reader, DependenceClass::ordinary, at)) {
        return loops[k]->name;
      }
    }
    return "";
  }

  /// Condition 3.
  std::string terms_used_late() {
    for (const Dependence& dependence : facts_.dependences()) {
      if (dependence.kind != DependenceKind::flow || !is_mediator(composite_, dependence.source)) continue;
      if (dependence.tensor == composite_.lead_tensor) continue;
      if (!is_mediator(composite_, dependence.sink) && !is_follower(composite_, dependence.sink)) continue;
      if (checker_.same_iteration(dependence.relation, dependence.source, dependence.sink, depth_)) continue;
      return fmt::format("{} must use {}'s terms in the iteration that computes them", dependence.sink, dependence.source);
    }
    return "";
  }

  OrderChecker& checker_;
  const NestFacts& facts_;
  const Composite& composite_;
  const std::vector<RelaxedDependence>& relaxed_;
  std::size_t depth_;
};

bool concerns(const Composite& composite, const std::set<std::string>& touched) {
  const std::vector<std::string> names = members_of(composite);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return touched.count(name) > 0; });
}

/// A lead that another active composite corrects has no running value of its own to give.
std::optional<std::string> corrected_lead(const NestFacts& facts, std::size_t which, const std::vector<std::size_t>& active) {
  for (const std::size_t other : active) {
    if (other == which) continue;
    if (is_follower(facts.composites[other], facts.composites[which].lead)) return facts.composites[other].lead;
    if (is_follower(facts.composites[which], facts.composites[other].lead)) return facts.composites[which].lead;
  }
  return std::nullopt;
}

}  // namespace

std::size_t shared_by_all(const Composite& composite, const TreeIndex& index) {
  std::size_t shared = SIZE_MAX;
  for (const std::string& name : members_of(composite)) {
    if (name != composite.lead) shared = std::min(shared, index.meet(composite.lead, name).shared);
  }
  return shared == SIZE_MAX ? 0 : shared;
}

std::optional<Violation> judge_composites(OrderChecker& checker, const std::set<std::string>& touched,
                                          std::vector<std::size_t>& active) {
  const NestFacts& facts = *checker.data().facts;
  for (std::size_t which = 0; which < facts.composites.size(); ++which) {
    const Composite& composite = facts.composites[which];
    if (!concerns(composite, touched)) continue;
    std::erase(active, which);
    CompositeJudge judge(checker, which);
    std::optional<Violation> need = judge.need();
    if (!need) continue;
    std::string objection = judge.objection();
    if (const auto other = corrected_lead(facts, which, active); objection.empty() && other) {
      objection = fmt::format("{} is corrected by the composite of {}", composite.lead, *other);
    }
    if (!objection.empty()) {
      need->note = fmt::format("rule {} would let {} read the running value, but {}", composite.rule,
                               facts.dependences()[need->dependence].sink, objection);
      return need;
    }
    active.push_back(which);
    std::sort(active.begin(), active.end());
  }
  return std::nullopt;
}

}  // namespace nestor
