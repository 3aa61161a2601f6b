// The steps of composites (docs/algebra.md): save, move, correct; then terms with the moved value, used in the step that made them.
#include "codegen/proof/composite_steps.h"
#include "codegen/proof/model/counts.h"
#include "codegen/proof/model/outcome.h"
#include "codegen/proof/model/time_order.h"
#include "codegen/proof/model/values.h"
#include "codegen/proof/obligations.h"

#include <fmt/format.h>
#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <algorithm>

namespace nestor::proof {
namespace {

/// Do both share the first `depth` loops, and an iteration of them? Parts of a specialised loop have none in common.
bool meet(const Run& a, const Run& b, std::size_t depth) {
  return shared_loops(a, b) >= depth && !with_first_dims(a.executed, depth).is_disjoint(with_first_dims(b.executed, depth));
}

bool same_place_in_time(const Run& a, const Run& b) { return a.depth() == b.depth() && meet(a, b, a.depth()); }

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
    }
    prove_terms(subject_, composite_, steps_);
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
        if (reads && !is_mediator(composite_, s.name) && !is_follower(composite_, s.name))
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
      if (!own && meet(run, *step.lead, depth)) refute(fmt::format("{} runs within a step", title(run)));
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
      if (!used) refute(fmt::format("{} belongs to no step", title(run)));
      const bool assigns = std::none_of(run.members.begin(), run.members.end(), [](const OpMember& member) {
        return member.op->reduction.has_value() || member.op->fill.has_value();
      });
      if (!assigns) refute(fmt::format("{} does more than to assign", title(run)));
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
    return member.op->reads[read];
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
        with_scalars(follower.correction,
                     {{"r", r},
                      {"m_old", view_of(composite_.corrected_by(), ScalarExpr::read(1, ElementType::f32), kPointsBefore)},
                      {"m_new", view_of(composite_.corrected_by(), ScalarExpr::read(2, ElementType::f32), kPointsThrough)},
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
      const isl::map written = at_instances(run.statement->write.relation, run);
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
    const isl::map moved = at_instances(lead.statement->write.relation, lead).apply_range(leads.reverse());
    isl::map missed = moved;
    if (!corrected.is_null()) {
      const auto dims = static_cast<unsigned>(isl_map_dim(moved.get(), isl_dim_in)) - static_cast<unsigned>(lead.depth());
      const isl::map done = isl::manage(isl_map_add_dims(corrected.copy(), isl_dim_in, dims));
      if (moved.is_subset(done)) return;
      missed = moved.subtract(done);
    }
    for (const Run& run : model_.runs()) {
      if (run.statement != &follower || run.part != OpPart::points) continue;
      const isl::map pairs = missed.apply_range(at_instances(follower.write.relation, run).reverse());
      if (const auto broken = out_of_order(pairs, lead, run, OrderNeed::ordered))
        refute(fmt::format("{} moves it and {} is not corrected, for example {}", title(lead), follower.name,
                           sample_text(*broken, lead.space().variables(), run.space().variables())));
    }
  }

  /// Who reads an accumulator without being a member reads it when nothing moves any more.
  void prove_final(const StepOps& step, const Statement& follower, const isl::map& leads) const {
    const Run& lead = *step.lead;
    const isl::map moved = at_instances(lead.statement->write.relation, lead).apply_range(leads.reverse());
    for (const Run& run : model_.runs()) {
      if (run.statement == nullptr || run.part != OpPart::points || is_member(composite_, run.statement->name)) continue;
      for (const Access& read : run.statement->reads) {
        if (read.tensor != follower.write.tensor) continue;
        const isl::map pairs = moved.apply_range(at_instances(read.relation, run).reverse());
        if (const auto broken = out_of_order(pairs, lead, run, OrderNeed::ordered))
          refute(fmt::format("{} reads {} before it is final, for example {}", title(run), read.tensor,
                             sample_text(*broken, lead.space().variables(), run.space().variables())));
      }
    }
  }

  const Subject& subject_;
  const ProgramModel& model_;
  const Nest& nest_;
  const Composite& composite_;
  std::vector<StepOps> steps_;
};

}  // namespace

void prove_composites(const Subject& subject) {
  for (const Composite& composite : subject.composites) CompositeProof(subject, composite).prove();
}

}  // namespace nestor::proof
