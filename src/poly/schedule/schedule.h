// Schedule: a nest plus a list of proved steps. Persistent: every step returns a new Schedule, so undo costs nothing.
#pragma once

#include "poly/nest/composite.h"
#include "poly/nest/dependences.h"
#include "poly/nest/nest.h"
#include "poly/schedule/order/loop_form.h"
#include "poly/schedule/order/stage_directive.h"
#include "poly/schedule/order/step.h"
#include "poly/schedule/order/tree_node.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

struct ScheduleData;

/// A legal schedule. Construction and `apply` either give a schedule whose every dependence is respected, or throw.
class Schedule {
 public:
  /// The original order: a sequence with one loop chain per group; loops are named `<statement>.<dim>`.
  explicit Schedule(Nest nest);

  /// A new schedule with the step applied. Throws UserError: unknown loop or argument, a step that does not fit the tree,
  /// or an order that breaks a dependence. In the last case the message contains " is illegal: " and names the step, both
  /// statement instances with their numbers, the dependence, and a remedy if a simple one exists (a skew factor, a rule,
  /// fission first); the exception is then an IllegalStep, which has all of that as data.
  Schedule apply(const Step& step) const;
  Schedule apply_all(const std::vector<Step>& steps) const;
  /// The same, or nothing where apply() would throw: no time goes into explaining why.
  std::optional<Schedule> try_apply(const Step& step) const;

  const Nest& nest() const;           ///< after the algebra steps
  const Nest& original_nest() const;  ///< as defined
  const std::vector<Dependence>& dependences() const;
  const std::vector<Composite>& composites() const;
  /// Composites whose relaxation this order really needs (lead and mediators share a reduction loop).
  std::vector<Composite> active_composites() const;
  /// The largest sizes for which reads of the nest are guarded (reached_points.h), in elements. Throws UserError where none are.
  std::int64_t guarded_sizes() const;
  /// Reductions may be regrouped (rule "reassociate" applied).
  bool reassociation_allowed() const;
  const Tree& tree() const;
  const LoopForm& form(const std::string& statement) const;
  const std::vector<Step>& steps() const;
  const std::vector<StageDirective>& stages() const;
  const std::vector<std::string>& streaming_tensors() const;

  /// Names of the loops around a statement, outermost first.
  std::vector<std::string> loops_of(const std::string& statement) const;
  /// { Statement[dims] -> [loops of the statement, outermost first] }, one to one on the domain.
  isl::map loop_relation(const std::string& statement) const;
  /// The isl schedule tree of the current order: context, sequences of filters, and for each loop a band of one member under
  /// a mark with the loop's name (and kind, unless serial). Loops that run concurrently are marked coincident.
  isl::schedule isl_tree() const;
  /// Loop nest as readable code, one line a loop, with kinds.
  std::string str() const;

 private:
  explicit Schedule(ScheduleData data);
  std::shared_ptr<const ScheduleData> data_;
};

/// {"op": name, "nest": digest of the original nest, "steps": [...]}
nlohmann::json schedule_to_json(const Schedule& schedule);
/// Replays onto `nest`. Throws UserError when the file is for another nest, or a step fails.
Schedule schedule_from_json(const Nest& nest, const nlohmann::json& json);

}  // namespace nestor
