// Part fusion_groups: statements that share a loop over parts of a reduction.
#pragma once

#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_structure.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace nestor {

/// Fusion groups in which all loop groups that can run along one part axis share it, whatever stands between them: within a part the loop groups
/// of the whole axis take its points one after the other, so that values of one point meet sums over many. The others come
/// first, as their steps have to. Nothing when there is no part axis or the schedule refuses.
/// `form`: which axes they share.
enum class PartForm : std::uint8_t {
  alone,  ///< that over parts
  by_row,  ///< all that their loop groups have in common: parts of rows, whose points are streamed. Of products fused with care alone
  by_tile,  ///< the same, where a part is what a tile of a product has of its rows: no loop runs over its points
};
std::optional<std::vector<FusionGroup>> find_part_groups(const Schedule& base, const NestStructure& structure, Fusion fusion,
                                                         PartForm form = PartForm::alone);

}  // namespace nestor
