// Sizes that are better fixed when compiling: those that products of few terms sum over, where other sums run over the products.
#pragma once

#include "poly/nest/nest.h"

#include <set>
#include <string>

namespace nestor {

/// Names of sizes that are not fixed by the definition, and that whole tiles of such products have. Their results then stay in registers.
std::set<std::string> sizes_of_short_sums(const Nest& nest, const Sizes& sizes);

}  // namespace nestor
