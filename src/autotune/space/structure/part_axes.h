// Part axes: loops over parts of a reduction, recognised by the points that a part has.
#pragma once

#include "autotune/space/structure/nest_structure.h"
#include "poly/nest/nest.h"

namespace nestor {

/// Fills `parts` of the structure: a dim p beside a dim j with size*p <= j < size*p + size is on a part axis of j's axis. Dims
/// over parts of one size of one axis get one axis.
void find_part_axes(const Nest& nest, NestStructure& structure);

}  // namespace nestor
