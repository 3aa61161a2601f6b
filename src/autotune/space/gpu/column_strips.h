// ColumnStrips: sums across memory whose points are read again, of which a block has all for some columns.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <optional>

namespace nestor {

/// Is the extent of a tensor along the axis the same for all launches?
bool has_known_extent(const Nest& nest, const NestStructure& structure, const FusionGroup& group, int axis);

/// Values for a group that is all of a nest: statistics of channels that lie far apart in memory, and what is made of them at each place. A block
/// takes all channels of neighbouring places, whose inputs stay in the first cache from one sum to the next, or in shared memory where their number is known. nullopt: there are no such sums,
/// nothing is read again, a strip is too large for that cache, or there are too few strips for all units.
std::optional<NamedValues> values_of_strips(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                            const GpuLimits& limits);

}  // namespace nestor
