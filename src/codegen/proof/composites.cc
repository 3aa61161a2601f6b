// The steps of composites (docs/algebra.md): save, move, correct; then terms with the moved value, used in the step that made them.
#include "codegen/proof/counts.h"
#include "codegen/proof/obligations.h"
#include "codegen/proof/outcome.h"
#include "codegen/proof/time_order.h"
#include "codegen/proof/values.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_follower(const Composite& composite, const std::string& statement) {
  return std::any_of(composite.followers.begin(), composite.followers.end(),
                     [&](const Follower& follower) { return follower.statement == statement; });
}

bool is_member(const Composite& composite, const std::string& statement) {
  return statement == composite.lead || has(composite.mediators, statement) || is_follower(composite, statement);
}

bool same_place_in_time(const Run& a, const Run& b) { return shared_loops(a, b) == a.depth() && a.depth() == b.depth(); }

isl::map pulled_back(const isl::map& relation, const Run& run) {
  return isl::manage(isl_map_preimage_domain_multi_aff(relation.copy(), run.instance.copy())).intersect_domain(run.instances);
}

isl::map united(const isl::map& a, const isl::map& b) { return a.is_null() ? b : a.unite(b); }

/// One lead op with the ops of its step.
struct StepOps {
  const Run* lead = nullptr;
  const Run* save = nullptr;
  const Run* hold = nullptr;
  std::map<std::string, const Run*> corrects;  ///< by follower
};

class CompositeProof {
 public:
  CompositeProof(const Subject& subject, const Composite& composite)
      : subject_(subject), model_(subject.model), nest_(model_.nest()), composite_(composite) {}

  void prove() {
    prove_readers_are_members();
    for (const Run& run : model_.runs()) {
      if (run.statement == nullptr || run.statement->name != composite_.lead || run.part != OpPart::points) continue;
      steps_.push_back(ops_around(run));
    }
    prove_no_stray_ops();
    for (const StepOps& step : steps_) {
      prove_save(step);
      if (step.hold != nullptr) prove_hold(step);
      for (const Follower& follower : composite_.followers) prove_corrections(step, follower);
      prove_terms(step);
      prove_views(step);
    }
    prove_matches();
  }

 private:
  [[noreturn]] void refute(const std::string& what) const {
    throw BrokenObligation(fmt::format("composite of {}: {}", composite_.lead, what));
  }

  /// Terms relative to a moving value are seen by nobody who is not corrected.
  void prove_readers_are_members() const {
    for (const std::string& mediator : composite_.mediators) {
      const std::string& tensor = nest_.statement(mediator).write.tensor;
      if (nest_.tensor(tensor).role == TensorRole::output) refute(fmt::format("{} returns terms of a moving value", mediator));
      for (const Statement& s : nest_.statements) {
        const bool reads = std::any_of(s.reads.begin(), s.reads.end(), [&](const Access& read) { return read.tensor == tensor; });
        if (reads && !has(composite_.mediators, s.name) && !is_follower(composite_, s.name))
          refute(fmt::format("{} sees terms of a moving value", s.name));
      }
    }
  }

  StepOps ops_around(const Run& lead) const {
    StepOps step;
    step.lead = &lead;
    int first = lead.positions.back(), last = first;
    for (const Run& run : model_.runs()) {
      const OpClaim& claim = run.op().claim;
      if (claim.lead != composite_.lead || claim.role == OpRole::statement || !same_place_in_time(run, lead)) continue;
      const Run** slot = claim.role == OpRole::save   ? &step.save
                         : claim.role == OpRole::hold ? &step.hold
                                                      : &step.corrects[claim.statement];
      if (*slot != nullptr) refute(fmt::format("{} runs twice a step", title(run)));
      *slot = &run;
      first = std::min(first, run.positions.back());
      last = std::max(last, run.positions.back());
    }
    if (step.save == nullptr) refute(fmt::format("its value before {} is not saved", title(lead)));
    if ((step.hold != nullptr) != (composite_.threshold > 0)) refute("it stays behind where it must not, or the other way round");
    prove_sequence(step, first, last);
    return step;
  }

  /// save, lead, hold, corrections, and nothing between them.
  void prove_sequence(const StepOps& step, int first, int last) const {
    const auto at = [](const Run* run) { return run->positions.back(); };
    bool ordered = at(step.save) < at(step.lead) && (step.hold == nullptr || at(step.lead) < at(step.hold));
    const int moved = step.hold != nullptr ? at(step.hold) : at(step.lead);
    for (const auto& [follower, correct] : step.corrects) ordered = ordered && moved < at(correct);
    if (!ordered) refute("save, move and correct are not in this order");
    for (const Run& run : model_.runs()) {
      const std::size_t depth = step.lead->depth();
      if (shared_loops(run, *step.lead) < depth || run.positions[depth] < first || run.positions[depth] > last) continue;
      const bool own = &run == step.lead || run.op().claim.lead == composite_.lead;
      if (!own) refute(fmt::format("{} runs within a step", title(run)));
    }
  }

  void prove_no_stray_ops() const {
    for (const Run& run : model_.runs()) {
      const OpClaim& claim = run.op().claim;
      if (claim.role == OpRole::statement || claim.role == OpRole::stage || claim.lead != composite_.lead) continue;
      const bool used = std::any_of(steps_.begin(), steps_.end(), [&](const StepOps& step) {
        return &run == step.save || &run == step.hold ||
               std::any_of(step.corrects.begin(), step.corrects.end(), [&](const auto& entry) { return entry.second == &run; });
      });
      if (!used || run.op().reduction || run.op().guard.defined()) refute(fmt::format("{} belongs to no step", title(run)));
    }
  }

  /// { [loops] -> element } of an access, at `points` of each member.
  isl::map elements(const Run& run, int read, bool instances_only) const {
    isl::map all;
    for (const OpMember& member : run.members) {
      const TileAccess& access = access_of(run, member, read);
      const isl::map own = model_.element(member, access).intersect_domain(instances_only ? member.instances : member.executed);
      all = united(all, with_first_dims(own, run.depth()));
    }
    return all.coalesce();
  }

  const TileAccess& access_of(const Run& run, const OpMember& member, int read) const {
    if (read < 0) return member.op->write;
    if (static_cast<std::size_t>(read) >= member.op->reads.size()) refute(fmt::format("{} has no read {}", title(run), read));
    return member.op->reads[static_cast<std::size_t>(read)];
  }

  int home(const Run& lead) const { return lead.op().write.buffer; }

  /// An access names one element with the write, and lies in the buffer.
  void expect_same_element(const Run& run, int read, int buffer) const {
    for (const OpMember& member : run.members) {
      const TileAccess& access = access_of(run, member, read);
      if (access.buffer != buffer) refute(fmt::format("{} reads another buffer", title(run)));
      const isl::map from = model_.element(member, access).intersect_domain(member.executed);
      if (!from.is_subset(model_.element(member, member.op->write))) refute(fmt::format("{} reads another element", title(run)));
    }
  }

  void prove_save(const StepOps& step) const {
    const Run& save = *step.save;
    expect_same_element(save, 0, home(*step.lead));
    const int kept = save.op().write.buffer;
    if (kept == home(*step.lead) || model_.buffer(kept).tensor != composite_.lead_tensor)
      refute("its value is saved in another tensor");
    for (const OpMember& member : save.members) {
      if (member.op->value.op() != ScalarOp::read || member.op->reads.size() != 1) refute("what is saved is not its value");
    }
    for (const Run& run : model_.runs()) {
      if (run.op().write.buffer == kept && !run.is_role(OpRole::save))
        refute(fmt::format("{} overwrites the saved value", title(run)));
    }
    const isl::map moved = elements(*step.lead, -1, true), saved = elements(save, -1, false);
    if (!moved.is_subset(saved))
      refute(fmt::format("an element is moved and not saved, for example {}", text(moved.subtract(saved), *step.lead)));
  }

  std::string text(const isl::map& elements, const Run& run) const {
    std::vector<std::string> loops, index;
    for (const TimeLoop& loop : run.loops) loops.push_back(loop.var);
    for (int k = 0; k < isl_map_dim(elements.get(), isl_dim_out); ++k) index.push_back(fmt::format("index {}", k));
    return sample_text(elements, loops, index);
  }

  void prove_hold(const StepOps& step) const {
    const Run& hold = *step.hold;
    if (hold.op().write.buffer != home(*step.lead)) refute("another value is held");
    expect_same_element(hold, 0, step.save->op().write.buffer);
    expect_same_element(hold, 1, home(*step.lead));
    const ScalarExpr expected = with_scalars(
        composite_.held, {{"m_old", ScalarExpr::read(0, ElementType::f32)}, {"m_new", ScalarExpr::read(1, ElementType::f32)}});
    for (const OpMember& member : hold.members) {
      if (!matches_value(*member.op, expected)) refute("the held value is not the rule's");
    }
    if (!elements(hold, -1, true).is_subset(elements(*step.save, -1, false))) refute("an element is held that was not saved");
  }

  /// { Tensor[element of the follower] -> LeadTensor[element] }
  isl::map lead_of_element(const Statement& follower) const {
    const isl::set domain = follower.domain.intersect_params(model_.context());
    const isl::map leads = lead_of(nest_, composite_, follower).intersect_domain(domain);
    const isl::map result = follower.write.relation.intersect_domain(domain).reverse().apply_range(leads).coalesce();
    if (isl_map_is_single_valued(result.get()) != isl_bool_true)
      refute(fmt::format("an element of {} depends on several leading values", follower.name));
    return result;
  }

  void prove_corrections(const StepOps& step, const Follower& follower) const {
    const Statement& statement = nest_.statement(follower.statement);
    const isl::map leads = lead_of_element(statement);
    const auto found = step.corrects.find(follower.statement);
    isl::map corrected;
    if (found != step.corrects.end()) {
      prove_correction(step, *found->second, follower, leads);
      corrected = elements(*found->second, -1, true);
    }
    prove_none_missed(step, statement, leads, corrected);
    prove_final(step, statement, leads);
  }

  ScalarExpr corrected_value(const Follower& follower) const {
    const ScalarExpr r = ScalarExpr::read(0, ElementType::f32);
    const ScalarExpr before = ScalarExpr::scalar(kPointsBefore, ElementType::f32),
                     total = ScalarExpr::scalar(kPointsTotal, ElementType::f32);
    const ScalarExpr value =
        with_scalars(follower.correction, {{"r", r},
                                           {"m_old", view_of(composite_, ScalarExpr::read(1, ElementType::f32), kPointsBefore)},
                                           {"m_new", view_of(composite_, ScalarExpr::read(2, ElementType::f32), kPointsThrough)},
                                           {"n_old", before},
                                           {"n_total", total}});
    if (!counts_points(composite_)) return value;
    const ScalarExpr started = ScalarExpr::make(ScalarOp::lt, {ScalarExpr::constant(0), before});
    return ScalarExpr::make(ScalarOp::select, {started, value, r});
  }

  void prove_correction(const StepOps& step, const Run& correct, const Follower& follower, const isl::map& leads) const {
    if (correct.op().kind != OpKind::map) refute(fmt::format("{} is no map", title(correct)));
    for (const Run& run : model_.runs()) {
      const bool accumulates =
          run.statement != nullptr && run.statement->name == follower.statement && run.part == OpPart::points;
      if (accumulates && run.op().write.buffer != correct.op().write.buffer)
        refute(fmt::format("{} corrects another buffer", title(correct)));
    }
    expect_same_element(correct, 0, correct.op().write.buffer);
    for (const OpMember& member : correct.members) {
      if (access_of(correct, member, 1).buffer != step.save->op().write.buffer ||
          access_of(correct, member, 2).buffer != home(*step.lead))
        refute(fmt::format("{} reads other values than the saved one and the moved one", title(correct)));
      const isl::map lead_element =
          model_.element(member, member.op->write).intersect_domain(member.instances).apply_range(leads);
      for (const int read : {1, 2}) {
        if (!model_.element(member, access_of(correct, member, read)).intersect_domain(member.instances).is_subset(lead_element))
          refute(fmt::format("{} reads another leading value than its follower's", title(correct)));
      }
      std::vector<CountUse> counts;
      if (!matches(member.op->value, corrected_value(follower), counts))
        refute(fmt::format("{} has another formula than the rule's", title(correct)));
      if (!counts.empty()) prove_counts(subject_, composite_, *step.lead, correct, member, lead_element, counts);
    }
    if (!elements(correct, 1, true).is_subset(elements(*step.save, -1, false)))
      refute(fmt::format("{} uses a value that was not saved", title(correct)));
    prove_copy_of_follower(correct, follower);
  }

  /// The correction finds the accumulator in the copy of its buffer in which the follower's terms are.
  void prove_copy_of_follower(const Run& correct, const Follower& follower) const {
    const Buffer& buffer = model_.buffer(correct.op().write.buffer);
    for (const Run& run : model_.runs()) {
      if (run.statement == nullptr || run.statement->name != follower.statement || run.part != OpPart::points) continue;
      std::size_t depth = buffer.scope.size();
      if (buffer.memory == Memory::scratch) depth = std::max({depth, run.task_depth(), correct.task_depth()});
      const isl::map written = pulled_back(run.statement->write.relation, run);
      for (const OpMember& member : correct.members) {
        const isl::map pairs =
            model_.element(member, member.op->write).intersect_domain(member.instances).apply_range(written.reverse());
        const bool together = shared_loops(correct, run) >= depth && is_empty(pairs.subtract(with_equal_loops(pairs, depth)));
        if (depth > 0 && !together && !is_empty(pairs))
          refute(fmt::format("{} corrects another copy than {} accumulates in", title(correct), title(run)));
      }
    }
  }

  /// Every accumulator whose leading value moves has been corrected, or has no terms yet.
  void prove_none_missed(const StepOps& step, const Statement& follower, const isl::map& leads, const isl::map& corrected) const {
    const Run& lead = *step.lead;
    const isl::map moved = pulled_back(lead.statement->write.relation, lead).apply_range(leads.reverse());
    isl::map missed = moved;
    if (!corrected.is_null()) {
      const auto dims = static_cast<unsigned>(isl_map_dim(moved.get(), isl_dim_in)) - static_cast<unsigned>(lead.depth());
      const isl::map done = isl::manage(isl_map_add_dims(corrected.copy(), isl_dim_in, dims));
      if (moved.is_subset(done)) return;
      missed = moved.subtract(done);
    }
    for (const Run& run : model_.runs()) {
      if (run.statement != &follower || run.part != OpPart::points) continue;
      const isl::map pairs = missed.apply_range(pulled_back(follower.write.relation, run).reverse());
      if (const auto broken = out_of_order(pairs, lead, run, OrderNeed::ordered))
        refute(fmt::format("{} moves it and {} is not corrected, for example {}", title(lead), follower.name,
                           sample_text(*broken, lead.space().variables(), run.space().variables())));
    }
  }

  /// Who reads an accumulator without being a member reads it when nothing moves any more.
  void prove_final(const StepOps& step, const Statement& follower, const isl::map& leads) const {
    const Run& lead = *step.lead;
    const isl::map moved = pulled_back(lead.statement->write.relation, lead).apply_range(leads.reverse());
    for (const Run& run : model_.runs()) {
      if (run.statement == nullptr || run.part != OpPart::points || is_member(composite_, run.statement->name)) continue;
      for (const Access& read : run.statement->reads) {
        if (read.tensor != follower.write.tensor) continue;
        const isl::map pairs = moved.apply_range(pulled_back(read.relation, run).reverse());
        if (const auto broken = out_of_order(pairs, lead, run, OrderNeed::ordered))
          refute(fmt::format("{} reads {} before it is final, for example {}", title(run), read.tensor,
                             sample_text(*broken, lead.space().variables(), run.space().variables())));
      }
    }
  }

  /// A term is used while the leading value is the one it was computed with.
  void prove_terms(const StepOps& step) const {
    for (const Dependence& flow : subject_.dependences) {
      if (flow.kind != DependenceKind::flow || !has(composite_.mediators, flow.source) || flow.tensor == composite_.lead_tensor ||
          !is_member(composite_, flow.sink))
        continue;
      for (const Run& a : model_.runs()) {
        if (a.statement == nullptr || a.statement->name != flow.source || a.part != OpPart::points) continue;
        for (const Run& b : model_.runs()) {
          if (b.statement != nullptr && b.statement->name == flow.sink && b.part == OpPart::points) prove_term(step, flow, a, b);
        }
      }
    }
  }

  void prove_term(const StepOps& step, const Dependence& flow, const Run& a, const Run& b) const {
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
        const isl::map lead_element = pulled_back(lead_of(nest_, composite_, *run.statement), run);
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
  std::vector<StepOps> steps_;
};

}  // namespace

bool counts_points(const Composite& composite) {
  const auto counts = [](const ScalarExpr& expr) {
    bool found = false;
    if (!expr.defined()) return false;
    expr.visit([&](const ScalarExpr& node) {
      const bool scalar = node.op() == ScalarOp::scalar;
      found = found || (scalar && (node.name() == "n" || node.name() == "n_old" || node.name() == "n_total"));
    });
    return found;
  };
  return counts(composite.view) || std::any_of(composite.followers.begin(), composite.followers.end(),
                                               [&](const Follower& follower) { return counts(follower.correction); });
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

void prove_composites(const Subject& subject) {
  for (const Composite& composite : subject.composites) CompositeProof(subject, composite).prove();
}

}  // namespace nestor::proof
