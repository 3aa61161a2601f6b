// Product sizes: sizes that kernels on tensor cores must know when they are compiled.
#pragma once

#include "poly/nest/nest.h"

namespace nestor {

/// Marks as specialized what two products in a row run along in their operands' tiles: the extents of the dims that a sum of products of
/// two 16-bit inputs reduces, and of those that the second product, of what the first has left and another 16-bit input, adds to the rows
/// (head sizes of attention). The definition need not say so. Other nests stay as they are.
void specialize_product_sizes(Nest& nest);

}  // namespace nestor
