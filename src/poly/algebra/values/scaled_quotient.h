// A quotient as a product with a reciprocal that neither overflows nor becomes subnormal.
#pragma once

#include <optional>
#include <utility>

#include "poly/nest/scalar_expr.h"

namespace nestor {

/// x / y as (x k) (1 / (y k)), with k = 2^64 for tiny y, 2^-64 for huge ones, and 1 else.
ScalarExpr scaled_quotient(const ScalarExpr& x, const ScalarExpr& y);
/// x and y if `expr` is what scaled_quotient makes of them.
std::optional<std::pair<ScalarExpr, ScalarExpr>> inside_scaled_quotient(const ScalarExpr& expr);

}  // namespace nestor
