// What is proved of the arguments of an op's exponentials, so that a polynomial in place of the function unit needs no more tests than
// they ask for.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

namespace nestor::nvptx {

struct Exponents {
  bool least = false;  ///< none is below -126, minus infinity included
  bool most = false;   ///< none is above 126, infinity included
  /// The read of the op whose value, one a row, is NaN or infinite where an argument is NaN: the row's maximum. -1: none is known.
  int taint = -1;
  bool bounded_below = false;  ///< arguments are relative to the larger one of that value and a number
};

/// Of map `k` of the plan; `masked`: where values that the plan has chosen outside of ops' points (minus infinity) may be among its
/// operands.
///
/// Two arguments are used. (1) Interval arithmetic over what the plan's ops leave in fragments. (2) An argument c (x - m), c > 0, where a
/// reduction before has taken the maximum m over x at all points of the map: x <= m, so the argument is at most 0; and a maximum passes
/// NaN on, so m is NaN where x is, and infinite where x - m is NaN otherwise. m may also stay behind by t doublings if it does so by
/// select(doublings <= t, old, new). A maximum that may start from infinity bounds arguments, too, but taints none: x - m = -infinity is no NaN.
Exponents exponents_of(const TensorPlan& plan, int k, bool masked);

/// May powers of two in map `k` be off by 2^-13 of themselves, as the polynomial of few terms is? Where its values are rounded to 16 bits
/// (factors of products, stored results) or added up, and nothing takes a function of them: an error of a score of 300 would be one of
/// 0.04 in an exponent.
bool may_be_approximate(const TensorPlan& plan, int k);

}  // namespace nestor::nvptx
