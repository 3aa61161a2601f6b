// Product points: guesses for products of matrices on plain lanes, by register blocks.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

#include <vector>

namespace nestor {

/// Values of tiles and threads for the heaviest loop group of the fusion group where that multiplies matrices; empty elsewhere. Both
/// operands pass through shared memory, and each thread keeps a block of sums.
std::vector<NamedValues> likely_product_tiles(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                              const GpuLimits& limits);

/// The axes of its rows and columns; empty elsewhere.
std::vector<int> tiled_by_products(const Nest& nest, const NestStructure& structure, const FusionGroup& group);

}  // namespace nestor
