// What conditions and bounds say at sight: parts of conjunctions, distances of comparisons, terms of extrema.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/int_expr.h"

#include <vector>

namespace nestor {

/// The parts of a conjunction; empty for an undefined or constantly true guard.
std::vector<IntExpr> conjuncts(const IntExpr& guard);

/// What holds in each alternative of a condition, word for word: it is true wherever the condition is, and has no "or". Empty: nothing.
std::vector<IntExpr> held_by_all_alternatives(const IntExpr& condition);

/// Distance d with `comparison` (ge, gt) <=> d >= 0, or eq <=> d == 0; undefined for other operations.
IntExpr comparison_distance(const IntExpr& comparison);

/// The terms of nested applications of `op` (a minimum of minima).
void split_terms(const IntExpr& expr, IntOp op, std::vector<IntExpr>& terms);

/// All values of the dim are 0 or more, whatever else bounds them.
bool never_negative(const OpDim& dim);

/// Does it depend on a dim that the op reduces over?
bool uses_reduced(const TileOp& op, const IntExpr& expr);

/// Where a reduction changes its results: what the guard says of dims that are not reduced, or more. Undefined: everywhere. Elsewhere
/// there is no point to add, and elements may be another's or lie outside of the tensor.
IntExpr stored_where(const TileOp& op);

/// Conditions without which a term changes nothing: of one that chooses the reduction's neutral element wherever one of them fails. Empty for
/// others.
std::vector<ScalarExpr> conditions_of_term(const ScalarExpr& term, ReductionOp reduction);

}  // namespace nestor
