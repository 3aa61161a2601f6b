// Loop distribution: statements that share the serial loops of a recurrence get loops of their own inside them.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/rule_variants.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace nestor {

/// Value of the parameter "form" that asks for it, in whatever fusion group has such a form.
inline constexpr std::int64_t kDistributedForm = -1;

/// Are the points of a step independent, while those of the next one need others than their own?
bool has_steps_of_points(const FusionGroup& group);

/// Independent loops outside, then those that carry dependences, which the statements go on sharing. Nothing where no loop group has several
/// statements and no step of one has points whose sequences others share nothing with, where no common loop carries a dependence, or where the
/// order is illegal. Lives as long as `variants`.
const std::optional<GroupForm>& distributed_form(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group);

/// Common axes that stand outside in the form and whose iterations are independent, outermost first.
std::vector<int> independent_axes(const FusionGroup& group, const GroupForm& form);

/// Values of points with statements of recurrences in loops of their own, the best guess first; the others are those of `first`. Empty where no
/// fusion group has such a form. Independent loops around them are cut into a task a processor, into a few, or into as many as the first of
/// them has iterations. Where they are too few for the processors, they stay inside of a step, which has tasks itself.
std::vector<NamedValues> likely_distributions(RuleVariants& variants, const RuleVariant& usual, std::int64_t processors,
                                              const NamedValues& first);

/// What is asked of loops inside a step of a recurrence.
struct DistributedLoops {
  int tasks = 0;            ///< into which the large statements' own loops are cut, in parallel; 0 or 1: they are not
  std::int64_t vector = 0;  ///< lanes of the largest statement's last loop; 0: the back end chooses
  std::int64_t unroll = 0;  ///< of the loop around it
};

/// Steps that follow `shared`, which gave the group the plan's loops: each boundary between statements is cut from the inside out, as far
/// as dependences allow, but for the outermost serial loop and those around it, or, in another form than that of distribution, for the
/// plan's loops. Empty where `shared` is illegal.
std::vector<Step> distribution_steps(const Schedule& base, const NestStructure& structure, const FusionGroup& group,
                                     const GroupPlan& plan, const GroupSteps& shared, const Sizes& sizes,
                                     const DistributedLoops& wanted);

}  // namespace nestor
