// Composites after a later rule.
#pragma once

#include "poly/nest/composite.h"
#include "poly/nest/nest.h"

#include <vector>

namespace nestor {

/// Proves composites anew after a later rule has rewritten the nest: those that still hold, with corrections that fit the
/// nest as it is now. Call it whenever a rule is applied to a nest that has composites already.
std::vector<Composite> reprove(const Nest& nest, const std::vector<Composite>& composites);

}  // namespace nestor
