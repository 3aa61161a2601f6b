// Conditions of selects as isl sets.
#pragma once

#include <optional>

#include "poly/nest.h"

namespace nestor {

/// { Statement[dims] : condition holds }, if the condition is built of comparisons of integers that are affine in the
/// statement's dims; nullopt otherwise.
std::optional<isl::set> condition_set(const Statement& statement, const ScalarExpr& condition);

}  // namespace nestor
