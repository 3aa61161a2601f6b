// Conditions of selects as isl sets.
#pragma once

#include <optional>

#include "poly/nest/nest.h"

namespace nestor {

/// { Statement[dims] : condition holds }, if the condition is built of comparisons of integers that are affine in the statement's dims,
/// of quotients and remainders of such by constants, and of their minima, maxima and magnitudes, and its arithmetic has them exactly: no i32 wraps
/// around, and no f32 is rounded, for any sizes below 2^31 that the nest allows. Such conditions may choose the numbers that another one compares, as
/// in select(j <= i, 1, 0) == 0. Indices by themselves fit, as definitions must have them (docs/values.md); not so with `check_indices`, where
/// memory depends on it. nullopt otherwise.
std::optional<isl::set> condition_set(const Nest& nest, const Statement& statement, const ScalarExpr& condition,
                                      bool check_indices = false);

}  // namespace nestor
