// IndexOrder: indices of a tensor in another order, in place or in a copy.
#pragma once

#include "poly/nest/nest.h"

#include <cstddef>
#include <string>
#include <vector>

namespace nestor {

using IndexOrder = std::vector<int>;  ///< old places of indices, in their new order

/// The order in which one of `count` places comes last.
IndexOrder with_last(int count, int last);

/// The place of the index that is the dim by itself, if no other index follows it; else -1.
int own_index(const Statement& statement, const Access& access, int dim);

/// What the statement `sum` reads in place of `read`: the same elements in a new copy, with the indices in the order, which a statement of
/// its own before the sum fills. `nest` gets both; `before` is the nest that `sum` is one of.
Access read_of_copy(Nest& nest, const Nest& before, const Statement& sum, const Access& read, const IndexOrder& order);

/// Puts the indices of a temporary in the order, for all that write and read it.
void reorder_indices(Nest& nest, const std::string& tensor, const IndexOrder& order);

}  // namespace nestor
