// Rounding model: which freedom in rounding a definition leaves to its kernels, found in its structure.
#pragma once

#include "poly/nest/nest.h"

#include <optional>
#include <vector>

namespace nestor {

/// A definition computes in f32. Kernels may besides round the computed operands of matrix products to the 16 bits of the others,
/// because tensor cores take no wider ones, and may take coarse exponentials and hyperbolic tangents beside such products (docs/steps.md).
struct RoundingModel {
  struct Product {
    std::optional<ElementType> narrow;  ///< computed operands may be rounded to this type
    int narrow_read = -1;               ///< ordinal of the read that is the other operand; -1: both are computed
    bool expands = false;               ///< the sum may be made of products (rule expand_squares)
    bool reorders = false;              ///< a step of a recurrence that only adds up (rule prefix_reduction)
    bool factors = false;               ///< its terms may be products of exponentials (rule factor_exponential)
  };
  std::vector<Product> statements;         ///< one a statement
  std::optional<ElementType> matrix_type;  ///< 16-bit type whose matrix products the nest has
};

RoundingModel rounding_model(const Nest& nest);

/// May kernels round operands of some product to 16 bits? For the thread of the nest's isl context alone.
bool may_round_operands(const Nest& nest);

}  // namespace nestor
