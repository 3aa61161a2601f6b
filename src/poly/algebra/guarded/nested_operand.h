// NestedOperand: inner sums that are an operand of a product of matrices.
#pragma once

#include "poly/algebra/guarded/shared_nestings.h"
#include "poly/algebra/guarded/sum_edit.h"

namespace nestor {

/// What a factor outside may be where the definition multiplies by it before: else inner sums may underflow.
inline constexpr double kMostRegrouped = 0x1p32;

/// Are the inner sums and the factor outside, an element of 16 bits, rows and columns of a product of matrices?
bool nests_operand(const Statement& sum, const SharedNesting& shared);

/// The nest in which the edit's sum is the nested form of `sum` where that is finite, else its own. Both sums have the same value where it is,
/// and `sum` has the edit's dims before its own. Ends the edit.
Nest with_nested_operand(SumEdit& edit, const Statement& sum, const SharedNesting& shared);

}  // namespace nestor
