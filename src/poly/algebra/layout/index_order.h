// IndexOrder: indices of a tensor in another order, in place or in a copy.
#pragma once

#include "poly/nest/nest.h"

#include <cstddef>
#include <string>
#include <vector>

namespace nestor {

using IndexOrder = std::vector<int>;  ///< old places of indices, in their new order

/// What the statement `sum` reads in place of `read`: the same elements in a new copy, with the indices in the order, which a statement of
/// its own before the sum fills. `nest` gets both; `before` is the nest that `sum` is one of.
Access read_of_copy(Nest& nest, const Nest& before, const Statement& sum, const Access& read, const IndexOrder& order);

/// Puts the indices of a temporary in the order, for all that write and read it.
void reorder_indices(Nest& nest, const std::string& tensor, const IndexOrder& order);

}  // namespace nestor
