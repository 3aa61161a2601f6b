// ClusterChoice: what a point's values mean for one cluster: its plan, its inner loops, and the scratch memory that it takes.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/cluster_steps.h"
#include "autotune/space/structure/rule_variants.h"

#include <cstdint>
#include <vector>

namespace nestor {

constexpr std::int64_t kCombinedColumns = 32;  ///< elements whose parts one block combines, by default

/// `combines`: the cluster is what clusters over parts leave. Its units have to be together, or they are in the way.
ClusterPlan plan_for(RuleVariants& variants, const RuleVariant& variant, const Cluster& cluster, const NamedValues& values,
                     const SpaceLimits& limits, bool combines);

/// Bytes of temporaries that one tile of the cluster holds, each index counted with its tile or its whole extent.
std::int64_t scratch_bytes(const Nest& nest, const NestStructure& structure, const Cluster& cluster, const ClusterPlan& plan);

/// Requests on the loops that stay with the heaviest unit alone, for a CPU.
std::vector<Step> inner_loop_steps(const NestStructure& structure, const Cluster& cluster, const ClusterSteps& shape,
                                   const NamedValues& values);

}  // namespace nestor
