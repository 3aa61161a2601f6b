// ShortRows: many rows of few short sums, such as a softmax over some taps and the sum that it weighs.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/structure/nest_structure.h"

#include <vector>

namespace nestor {

/// Values for a group whose rows have few points, of sums of a few terms: blocks of many rows along the last two common axes, so that each thread has
/// loads of several rows under way. The best guess first; empty: rows are longer, or fewer.
std::vector<NamedValues> values_of_short_rows(const NestStructure& structure, const FusionGroup& group);

}  // namespace nestor
