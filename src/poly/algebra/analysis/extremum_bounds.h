// Bounds of what is relative to an extremum of its own: sums of exponentials, which a softmax divides by, and what is scaled to integers.
#pragma once

#include <optional>

#include "poly/algebra/analysis/value_range.h"
#include "poly/nest/nest.h"

namespace nestor {

/// The range of r = sum over j of exp(c (a_j - m)), m = max_j a_j, as the reduction `update` accumulates it: NaN, or at least 1 (from the
/// largest a_j; with room for rounding) and at most the number of points; less where m starts from a number, 0 without points. Relative to a
/// reference that stays behind m (rule online with a threshold) it is at most 2^14 times more. nullopt for other reductions.
std::optional<ValueRange> exponential_sum(const Nest& nest, const Statement& update);

/// The range of r + exp(c (y - m)) with c > 0, where r is such a sum and m starts from y: the larger of y and all a_j has the term 1. nullopt
/// for other values of the statement, of which `value` is one.
std::optional<ValueRange> exponential_sum_with_start(const Nest& nest, const Statement& statement, const ScalarExpr& value);

/// The range of x / y, where y is such a sum, complete, and x a term relative to the same element of m: at most 1 (with room for
/// rounding), whatever reference both are relative to. nullopt for other quotients.
std::optional<ValueRange> exponential_quotient(const Nest& nest, const Statement& statement, const ScalarExpr& value);

/// The range of the elements of a temporary that are exp(c (a_j - m)), relative to the extremum m of all a_j: at most 1, with room for rounding
/// and for a reference that stays behind m. nullopt for other temporaries.
std::optional<ValueRange> exponential_term(const Nest& nest, const std::string& tensor);

/// The range of x / y, or x z, where y is a positive multiple of the largest |x_j|, which has x among its x_j, or of the larger of that and a
/// number; and z is a number by such a y. What is scaled to integers of 8 bits has at most 127, with room for rounding. Elements of f16, or
/// that number, keep y from being denormal. nullopt for other values.
std::optional<ValueRange> extremum_quotient(const Nest& nest, const Statement& statement, const ScalarExpr& value);

/// { element of the follower's result } whose points include all that its leading value has taken, `lead_elements` and `lead_instances` as in
/// OnlinePlan. True when that is so for every element.
bool covers_lead(const Nest& nest, const Statement& follower, const Statement& lead, const isl::map& lead_instances,
                 const isl::map& lead_elements);

}  // namespace nestor
