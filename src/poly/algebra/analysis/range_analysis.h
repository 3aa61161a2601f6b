// Bounds of values that follow from their types, from the functions they come from and from the ranges of scalar arguments.
#pragma once

#include <string>

#include "poly/algebra/analysis/value_range.h"
#include "poly/nest/nest.h"

namespace nestor {

/// The range of an expression of `statement`.
ValueRange range_of(const Nest& nest, const Statement& statement, const ScalarExpr& expr);
/// The same over finite inputs, as if no operation overflowed: its infinities and NaN are what constants and functions make.
ValueRange made_range(const Nest& nest, const Statement& statement, const ScalarExpr& expr);
/// The range of the elements of a tensor.
ValueRange range_of(const Nest& nest, const std::string& tensor);

}  // namespace nestor
