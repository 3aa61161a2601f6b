// Part fusion_groups: statements that share a loop over parts of a reduction.
#pragma once

#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_structure.h"

#include <optional>
#include <vector>

namespace nestor {

/// Fusion groups in which all loop groups that can run along one part axis share it, whatever stands between them: within a part the loop groups
/// of the whole axis take its points one after the other, so that values of one point meet sums over many. The others come
/// first, as their steps have to. Nothing when there is no part axis or the schedule refuses.
/// `by_row`: fusion_groups that share all axes that their loop groups have in common, not those over parts alone: parts of rows. Where they
/// are fused with care, products are alone with what they need or what needs them.
std::optional<std::vector<FusionGroup>> find_part_groups(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                         bool by_row = false);

}  // namespace nestor
