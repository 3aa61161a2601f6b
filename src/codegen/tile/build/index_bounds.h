// Sizes for which indices that are used as values fit in 32 bits.
#pragma once

#include "codegen/tile/tile_program.h"
#include "poly/nest/nest.h"

#include <vector>

namespace nestor {

/// Conditions on the sizes under which every index that a statement uses as a value fits an i32 at all of its points. Throws UserError for an index
/// that fits at no sizes.
std::vector<SizeConstraint> bounds_of_index_values(const Nest& nest);

}  // namespace nestor
