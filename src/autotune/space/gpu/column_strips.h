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

/// The common axis along which results of a sum lie, where of its factors some lie along that axis and move with its terms, and the others, as
/// weights, have nothing of it: threads share columns, and read weights together. -1: there is none, or it is shorter than a warp.
int axis_of_weighted_columns(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

}  // namespace nestor
