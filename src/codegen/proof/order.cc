// Dependences of the nest in the program's time, and where values that flow through buffers are found.
#include "codegen/proof/composite_steps.h"
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/time_order.h"
#include "codegen/proof/obligations.h"
#include "poly/isl/conjunction.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

/// The flow from a leading value to the statements that may see it while it moves.
bool is_relaxed(const std::vector<Composite>& composites, const Dependence& dependence) {
  return dependence.kind == DependenceKind::flow && !dependence.reduction &&
         std::any_of(composites.begin(), composites.end(), [&](const Composite& composite) {
           const bool reader = dependence.sink != composite.lead && is_member(composite, dependence.sink);
           return reader && dependence.source == composite.lead && dependence.tensor == composite.lead_tensor;
         });
}

/// The dependence between points of two runs: { [a's loops, dims] -> [b's loops, dims] }.
isl::map between(const isl::map& relation, const Run& a, const Run& b) {
  isl_map* pairs = isl_map_preimage_domain_multi_aff(relation.copy(), a.instance.copy());
  return isl::manage(isl_map_preimage_range_multi_aff(pairs, b.instance.copy()));
}

class OrderProof {
 public:
  explicit OrderProof(const Subject& subject) : subject_(subject), model_(subject.model) {}

  void prove() {
    for (const Dependence& dependence : subject_.dependences) {
      for (const Run& a : model_.runs()) {
        if (a.statement == nullptr || a.statement->name != dependence.source) continue;
        for (const Run& b : model_.runs()) {
          if (b.statement != nullptr && b.statement->name == dependence.sink) prove(dependence, a, b);
        }
      }
    }
  }

 private:
  void prove(const Dependence& dependence, const Run& a, const Run& b) {
    const isl::map around = between(conjunction_around(dependence.relation), a, b)
                                .intersect_domain(conjunction_around(a.instances))
                                .intersect_range(conjunction_around(b.instances));
    const auto pairs = [&] {
      return between(dependence.relation, a, b).intersect_domain(a.instances).intersect_range(b.instances).coalesce();
    };
    const bool exact = !is_union(dependence.relation) && !is_union(a.instances) && !is_union(b.instances);
    if (!is_relaxed(subject_.composites, dependence)) {
      const OrderNeed need = dependence.reduction && subject_.reassociation ? OrderNeed::combined : OrderNeed::ordered;
      auto broken = broken_order(around, dependence, a, b, need);
      if (broken && !exact) broken = broken_order(pairs(), dependence, a, b, need);
      if (broken) refute(dependence, a, b, *broken);
    }
    if (dependence.kind != DependenceKind::flow) return;
    const std::size_t depth = common_depth(dependence, a, b);
    if (depth == 0 || (stays(around, depth, a, b))) return;
    if (exact || !stays(pairs(), depth, a, b)) {
      throw BrokenObligation(fmt::format(
          "storage: a value of {} leaves the copy of its buffer between {} and {}, for example {}", dependence.tensor, title(a),
          title(b), sample_text(leaving(pairs(), depth, a, b), a.space().variables(), b.space().variables())));
    }
  }

  /// Sums within one op are taken in any order by the op's meaning, whatever the rules say.
  static std::optional<isl::map> broken_order(const isl::map& pairs, const Dependence& dependence, const Run& a, const Run& b,
                                              OrderNeed need) {
    if (&a != &b || !dependence.reduction || need == OrderNeed::combined) return out_of_order(pairs, a, b, need);
    const isl::map inside = with_equal_loops(pairs, a.depth());
    if (auto broken = out_of_order(inside, a, b, a.op().kind == OpKind::points ? need : OrderNeed::combined)) return broken;
    return out_of_order(pairs.subtract(inside), a, b, need);
  }

  [[noreturn]] void refute(const Dependence& dependence, const Run& a, const Run& b, const isl::map& broken) const {
    throw BrokenObligation(fmt::format("order: '{}' does not go from {} to {} in time, for example {}", describe(dependence),
                                       title(a), title(b), sample_text(broken, a.space().variables(), b.space().variables())));
  }

  /// How many outer loops both ends must share for the value to be in one copy of its buffer.
  std::size_t common_depth(const Dependence& dependence, const Run& a, const Run& b) const {
    std::size_t depth = 0;
    for (const Buffer& buffer : model_.program().buffers) {
      if (buffer.tensor != dependence.tensor || buffer.memory == Memory::argument || !is_home(buffer)) continue;
      depth = std::max(depth, buffer.scope.size());
      if (buffer.memory == Memory::scratch) depth = std::max({depth, a.task_depth(), b.task_depth()});
    }
    return depth;
  }

  /// The buffer that statements write the tensor to, not a copy of it.
  bool is_home(const Buffer& buffer) const {
    return std::any_of(model_.runs().begin(), model_.runs().end(), [&](const Run& run) {
      return run.statement != nullptr && &model_.buffer(run.op().write.buffer) == &buffer;
    });
  }

  /// The first `depth` loops of both ends are the same ones with the same values.
  static bool stays(const isl::map& pairs, std::size_t depth, const Run& a, const Run& b) {
    return is_empty(leaving(pairs, depth, a, b));
  }

  static isl::map leaving(const isl::map& pairs, std::size_t depth, const Run& a, const Run& b) {
    if (shared_loops(a, b) < depth) return pairs;
    return pairs.subtract(with_equal_loops(pairs, depth));
  }

  const Subject& subject_;
  const ProgramModel& model_;
};

/// A buffer's copies follow the outermost loops around everything that touches it, and its places the tensor's elements.
void prove_scope(const ProgramModel& model, const Run& run, const TileAccess& access) {
  const Buffer& buffer = model.buffer(access.buffer);
  bool inside = buffer.scope.size() <= run.depth();
  for (std::size_t k = 0; inside && k < buffer.scope.size(); ++k) inside = run.loops[k].var == buffer.scope[k];
  if (!inside)
    throw BrokenObligation(
        fmt::format("storage: {} uses {} outside of the loops that have a copy of it", title(run), buffer.name));
  for (const IntExpr& origin : buffer.origin) {
    for (std::size_t k = 0; k < run.depth(); ++k) {
      const bool named = k < buffer.scope.size();
      if (!named && origin.uses(run.loops[k].var))
        throw BrokenObligation(fmt::format("storage: the place of {} moves with loop {}", buffer.name, run.loops[k].var));
      if (named && buffer.memory == Memory::workspace && is_task(run.loops[k].kind) && origin.uses(run.loops[k].var))
        throw BrokenObligation(fmt::format("storage: tasks of loop {} share the places of {}", run.loops[k].var, buffer.name));
    }
  }
}

}  // namespace

void prove_order(const Subject& subject) {
  for (const Run& run : subject.model.runs()) {
    for (const OpMember& member : run.members) {
      prove_scope(subject.model, run, member.op->write);
      for (const TileAccess& read : member.op->reads) prove_scope(subject.model, run, read);
    }
  }
  OrderProof(subject).prove();
}

}  // namespace nestor::proof
