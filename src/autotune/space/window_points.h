// Windows: sums of few terms that slide along axes of their results, so that neighbouring results read much in common.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nestor {

struct Windows {
  int columns = -1;         ///< the axis along memory of the results
  std::vector<int> slides;  ///< axes that windows slide along, in the order of the results' dims
  std::int64_t vector = 1;  ///< elements of the operand that slides which one thread loads at once
};

/// Of the statement of the loop group that sums up windows; nothing where there is none.
std::optional<Windows> windows_of(const Nest& nest, const LoopGroup& loop_group);

/// Tiles and threads that let each thread sum up a few neighbouring results together, the best guess first.
std::vector<NamedValues> likely_window_tiles(const NestStructure& structure, const FusionGroup& group, const Windows& windows);

/// Sizes in the extents that windows slide along and of what lies within them in memory: with them known, no row of a tile is in doubt.
std::set<std::string> sizes_of_windows(const Nest& nest, const Sizes& sizes);

}  // namespace nestor
