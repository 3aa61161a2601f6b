// Part clusters: statements that share a loop over parts of a reduction.
#pragma once

#include "autotune/space/structure/cluster_search.h"
#include "autotune/space/structure/nest_structure.h"

#include <optional>
#include <vector>

namespace nestor {

/// Clusters in which all units that can run along one part axis share it, whatever stands between them: within a part the units
/// of the whole axis take its points one after the other, so that values of one point meet sums over many. The others come
/// first, as their steps have to. Nothing when there is no part axis or the schedule refuses.
/// `by_row`: clusters that share all axes that their units have in common, not those over parts alone: parts of rows.
std::optional<std::vector<Cluster>> find_part_clusters(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                       bool by_row = false);

}  // namespace nestor
