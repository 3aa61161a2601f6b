// ShortRows: many rows of few short sums, such as a softmax over some taps and the sum that it weighs.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/structure/nest_structure.h"

#include <vector>

namespace nestor {

/// Values for a group whose rows have few points, of sums of a few terms: blocks of many rows along the last two common axes, so that each thread has
/// loads of several rows under way. The best guess first; empty: rows are longer, or fewer.
std::vector<NamedValues> values_of_short_rows(const NestStructure& structure, const FusionGroup& group);

/// Sums of few terms with few results for each point of the outer axes, as slopes within an element of a mesh: a block has the inner axes
/// whole, as far as they are short and known, and as many of the outer points as give its threads something to do. Empty: there are none.
NamedValues values_of_small_blocks(const Nest& nest, const NestStructure& structure, const FusionGroup& group,
                                   std::int64_t threads);

}  // namespace nestor
