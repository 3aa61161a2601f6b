// Bounds of values that follow from the functions they come from and from the ranges of scalar arguments.
#pragma once

#include <limits>

#include "poly/nest.h"

namespace nestor {

/// Finite values lie in [low, high]; infinite ones are no part of it, but said.
struct ValueRange {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool minus_infinity = false, plus_infinity = false;  ///< by a constant; values of inputs and overflows do not count
  bool bounded() const {
    return low > -std::numeric_limits<double>::infinity() && high < std::numeric_limits<double>::infinity();
  }
};

/// The range of an expression of `statement`. What is not known, an input say, is unbounded.
ValueRange range_of(const Nest& nest, const Statement& statement, const ScalarExpr& expr);

}  // namespace nestor
