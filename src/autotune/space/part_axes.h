// Part axes: loops over parts of a reduction, recognised by the points that a part has, and the clusters that run along them.
#pragma once

#include "autotune/space/nest_structure.h"

namespace nestor {

/// Fills `parts` of the structure: a dim p beside a dim j with size*p <= j < size*p + size is on a part axis of j's axis. Dims
/// over parts of one size of one axis get one axis.
void find_part_axes(const Nest& nest, NestStructure& structure);

/// Clusters in which all units that can run along one part axis share it, whatever stands between them: within a part the units
/// of the whole axis take its points one after the other, so that values of one point meet sums over many. The others come
/// first, as their steps have to. Nothing when there is no part axis or the schedule refuses.
/// `by_row`: clusters that share all axes that their units have in common, not those over parts alone: parts of rows.
std::optional<std::vector<Cluster>> find_part_clusters(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                       bool by_row = false);

}  // namespace nestor
