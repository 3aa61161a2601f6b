// Splitting whole composites into parts.
#pragma once

#include <string>

#include "poly/algebra/rules/rule.h"
#include "poly/algebra/rules/split_parts.h"

namespace nestor {

/// Splits the composite that the online (moments) rule finds around `lead` along one of its reduced dims. Throws UserError when its terms cannot be given to parts.
RuleResult split_online(const Nest& nest, const std::string& lead, int dim, const Parts& parts);
RuleResult split_moments(const Nest& nest, const std::string& lead, int dim, const Parts& parts);

}  // namespace nestor
