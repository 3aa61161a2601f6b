// Preparation: what products of matrices need and do not take part in, in kernels of its own before them.
#pragma once

#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_structure.h"
#include "poly/schedule/schedule.h"

#include <optional>
#include <vector>

namespace nestor {

/// Loop groups, in textual order, that use no product of matrices and sum something up, or compute an operand of such a product;
/// with those that they need. Statistics of rows and normalised operands are examples. Empty where the nest has no such product.
std::vector<int> preparing_loop_groups(const Nest& nest, const NestStructure& structure);

/// Fusion groups of the preparation first, marked as such, then all others as far as `fusion` (prepared or apart) fuses them. nullopt: there
/// is none, or the schedule refuses.
std::optional<std::vector<FusionGroup>> find_prepared_groups(const Schedule& base, const NestStructure& structure, Fusion fusion);

}  // namespace nestor
