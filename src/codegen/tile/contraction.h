// Contraction: what makes an op a sum of products. Found once, for the space, for tile ops and for every back end.
#pragma once

#include "poly/nest/nest.h"

#include <optional>
#include <vector>

namespace nestor {

/// A sum of scale * a * b, all in f32, where a and b are two different reads: of f32, or of 16 bits and widened. A cast that rounds
/// makes another value, so that there is none within it.
struct Contraction {
  int a = -1, b = -1;  ///< ordinals of the reads, in the order in which they stand in the value
  double scale = 1;    ///< product of the constants and signs
  friend bool operator==(const Contraction&, const Contraction&) = default;
};

/// The contraction that a value is which is accumulated by `reduction`; nullopt: it is none.
std::optional<Contraction> contraction_of(const ScalarExpr& value, std::optional<ReductionOp> reduction);
std::optional<Contraction> contraction_of(const Statement& statement);

/// The contractions whose sum is accumulated by `reduction`, in the order in which they stand; empty: some addend is none.
std::vector<Contraction> contractions_of(const ScalarExpr& value, std::optional<ReductionOp> reduction);

/// Those of a statement where their scales are 1 and all first reads have the same indices, as all second ones have: what tensor cores add up,
/// and, of a single one, the register blocks of a GPU's threads. Empty: it is another sum.
std::vector<Contraction> unscaled_contractions_of(const Statement& statement);
/// The first of them; nullopt: there is none.
std::optional<Contraction> unscaled_contraction_of(const Statement& statement);

}  // namespace nestor
