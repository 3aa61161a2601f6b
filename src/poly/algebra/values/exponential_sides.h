// Exponential: terms exp(a + b) g of a sum, taken apart into two factors that follow different dims of the result.
#pragma once

#include "poly/nest/nest.h"

#include <optional>
#include <set>
#include <vector>

namespace nestor {

/// One of the two factors that the terms become: exp(exponent), perhaps times a factor.
struct ExponentialSide {
  ScalarExpr exponent;               ///< the sum's, with this side's addends alone, in their order; two at most
  std::optional<ScalarExpr> factor;  ///< of the product that the exponential is a factor of
  std::set<int> dims;                ///< of the sum, that it follows, among them the reduced one
};

/// Terms as a product. Each side follows a dim of the result that the other does not.
struct Exponential {
  ScalarOp op = ScalarOp::exp;  ///< or exp2
  int reduced = -1;             ///< the only reduced dim
  ExponentialSide left, right;  ///< whichever way the definition adds them up, the left one has the same dims
};

/// The terms of a sum in f32 as two sides; nullopt: they are no products with an exponential of a sum, an addend or a factor follows own dims of
/// both sides, a side has several factors, or a dim of the result is followed by none.
std::optional<Exponential> exponential_of_sides(const Statement& sum);

}  // namespace nestor
