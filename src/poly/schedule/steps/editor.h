// The editor behind Schedule::apply: one member a step, then the legality check of what the step may have changed.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "poly/schedule/order/illegal_step.h"
#include "poly/schedule/order/legality.h"
#include "poly/schedule/order/schedule_data.h"

namespace nestor {

/// Typed access to a step's arguments; errors name the step and its argument list.
class StepArgs {
 public:
  explicit StepArgs(const Step& step) : step_(step) {}
  std::size_t count() const { return step_.args.size(); }
  /// Throws UserError unless the number of arguments is in [least, most].
  void expect(std::size_t least, std::size_t most) const;
  std::string text(std::size_t index) const;
  std::int64_t integer(std::size_t index, std::int64_t least, std::int64_t most) const;

 private:
  const Step& step_;
};

/// Largest factor that a step takes: keeps every coefficient of a loop form far from 64 bits.
inline constexpr std::int64_t kLargestFactor = 1 << 20;

/// Applies one step to a copy of a schedule's data.
class ScheduleEditor {
 public:
  /// The schedule after `step`; throws UserError. With `explain`, a broken dependence is described with numbers and a
  /// remedy is searched for; without, the message is bare (used while searching for remedies).
  static ScheduleData applied(const ScheduleData& before, const Step& step, bool explain);

  using Member = void (ScheduleEditor::*)();
  struct Entry {
    std::string name;
    std::string arguments;
    std::string help;
    Member member;
  };
  /// Every step, in the order of the documentation.
  static const std::vector<Entry>& entries();

 private:
  ScheduleEditor(const ScheduleData& before, const Step& step) : data_(before), step_(step), args_(step_) {}

  // loop_steps.cc: steps on one chain of loops
  void apply_rule();
  void split();
  void tile();
  void reorder();
  void skew();
  void shift();
  void reverse();
  // fusion_steps.cc: steps on bodies
  void fuse_with();
  void compute_at();
  void fission();
  // marks.cc: how loops are executed, and directives
  void parallel() { mark(LoopKind::parallel, false); }
  void vectorize() { mark(LoopKind::vectorize, true); }
  void unroll() { mark(LoopKind::unroll, true); }
  void serial() { mark(LoopKind::serial, false); }
  void gpu_blocks();
  void gpu_lanes() { mark(LoopKind::gpu_lane, false); }
  void set_knobs();
  void stage();
  void specialize();
  void streaming();

  void mark(LoopKind kind, bool takes_factor);
  Tree grid_argument() const;
  std::int64_t knob_value(const Knob& knob, std::size_t index) const;
  void mark_loop(const Tree& loop, LoopKind kind, std::int64_t factor);
  void split_loop(const std::string& name, std::int64_t factor, const std::string& outer, const std::string& inner);
  void reorder_loops(const std::vector<std::string>& order);
  void fuse_loops(const Tree& moved, const Tree& consumer);
  std::string producer_loop(const std::string& statement, const Tree& chain, const Tree& consumer, const std::string& asked);

  /// The loop an argument names: its full name, or the dimension's bare name when only one loop ends in it.
  Tree loop_argument(std::size_t index) const;
  Tree resolve_loop(const std::string& name) const;
  const Statement& statement_argument(std::size_t index) const;
  /// Throws UserError unless `name` may be given to a new loop; `replaced` is a loop that goes away.
  void check_new_loop(const std::string& name, const std::string& replaced) const;
  /// Loops from the first to the last of `wanted`, which must lie on one perfect chain.
  std::vector<Tree> perfect_chain(const std::vector<Tree>& wanted) const;
  /// Substitutes a loop by a form in the dims and constraints of statements. Throws UserError where coefficients get too large.
  void substitute(const std::vector<std::string>& statements, const std::string& loop, const LinearForm& value);
  void check_stages() const;
  void rename_in_stages(const std::string& from, const std::string& to);
  void drop_idle_stages();
  void check_order(const ScheduleData& before, bool explain);
  OrderScope scope_below(const Tree& node, std::size_t first_depth, std::size_t last_depth, bool sequence) const;
  std::string where() const;

  ScheduleData data_;
  Step step_;
  StepArgs args_;
  std::vector<OrderScope> scopes_;
};

/// What an illegal step would do, as data.
OrderConflict conflict_of(OrderChecker& checker, const Violation& violation);

/// The same in words: both instances with their numbers, the dependence, sizes, and a remedy if one is found.
std::string explain_violation(const ScheduleData& before, const Step& step, const Violation& violation,
                              const OrderConflict& conflict, const Dependence& dependence);

/// What would make `step` legal on `before`: a sentence, or empty.
std::string find_remedy(const ScheduleData& before, const Step& step, const Violation& violation);

}  // namespace nestor
