// Least time of a nest by its arithmetic alone.
#pragma once

#include "poly/nest/nest.h"

namespace nestor {

/// Instances of the statement that has most of them, at these sizes: a bound from below by sampling its domain's box, wrong with a
/// probability under 1e-4 (Hoeffding 1963) and by a tenth of the box at most. The same for equal nests and sizes.
double least_instances(const Nest& nest, const Sizes& sizes);

/// Milliseconds that so many instances take at least on the lanes of a GPU's multiprocessors, one a clock each.
double least_scalar_ms(double instances, int units);

}  // namespace nestor
