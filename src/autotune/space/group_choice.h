// GroupChoice: what a point's values mean for one fusion group: its plan, its inner loops, and the scratch memory that it takes.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/group_steps.h"
#include "autotune/space/structure/rule_variants.h"

#include <cstdint>
#include <vector>

namespace nestor {

constexpr std::int64_t kCombinedColumns = 32;  ///< elements whose parts one block combines, by default

/// Sums with a computed factor in common that a warp may have on a GPU, which makes it once. A tile of so short an axis may be larger than it.
constexpr std::int64_t kMostCommonSums = 8;

/// `combines`: the fusion group is what fusion_groups over parts leave. Its loop groups have to be together, or they are in the way.
GroupPlan plan_for(RuleVariants& variants, const RuleVariant& variant, const FusionGroup& group, const NamedValues& values,
                   const SpaceLimits& limits, bool combines);

/// Bytes of temporaries that one tile of the fusion group holds, each index counted with its tile or its whole extent.
std::int64_t scratch_bytes(const Nest& nest, const NestStructure& structure, const FusionGroup& group, const GroupPlan& plan);

/// Requests on the loops that stay with the heaviest loop group alone, for a CPU.
std::vector<Step> inner_loop_steps(const NestStructure& structure, const FusionGroup& group, const GroupSteps& shape,
                                   const NamedValues& values);

}  // namespace nestor
