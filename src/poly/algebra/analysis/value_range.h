// What a value can be: bounds of its finite values, infinities, NaN.
#pragma once

#include <limits>

#include "nestor/types.h"

namespace nestor {

/// Finite values of the nest's floating point types are at most that large.
inline constexpr double kLargestFloat = std::numeric_limits<float>::max();

/// What an expression can be, over all inputs of the types that the nest gives them: infinities and NaN of inputs count, overflows too.
/// Finite values lie in [low, high] (none: low > high).
struct ValueRange {
  double low = -kLargestFloat, high = kLargestFloat;
  bool minus_infinity = true, plus_infinity = true, nan = true;
  bool zero = false;  ///< it may be 0 although [low, high] does not say so: a sum without terms

  /// Do functions or limits bound the finite values, not their type alone?
  bool bounded() const { return low > -kLargestFloat && high < kLargestFloat; }
  bool infinite() const { return minus_infinity || plus_infinity; }
  bool has_zero() const { return zero || (low <= 0 && 0 <= high); }
  /// The largest magnitude of a finite value.
  double magnitude() const;
  /// Is each finite value other than 0 at least 2^-doublings and at most 2^doublings in magnitude?
  bool within(int doublings) const;
};

/// The largest finite number of a type of floating point numbers.
double largest_of(ElementType type);

}  // namespace nestor
