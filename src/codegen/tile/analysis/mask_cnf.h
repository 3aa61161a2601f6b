// Conditions as conjunctions of clauses: what masks with "or", minima and maxima are cut and tested by.
#pragma once

#include "support/int_expr.h"

#include <vector>

namespace nestor::nvptx {

/// The condition as clauses, all of which must hold. A clause is a comparison `max(d1, d2, ...) >= 0` whose alternatives d are free of
/// minima, maxima and logic; a comparison that is so already stays as it is. What has no such form (a choice, too many clauses) is
/// returned whole.
std::vector<IntExpr> clauses_of(const IntExpr& condition);

/// How many of the clauses have several alternatives: with many, the pieces of the condition say it shorter.
int joined_clauses(const std::vector<IntExpr>& clauses);

/// The condition as pieces, one of which must hold: distances, all of which are >= 0 then. Empty: it has no such form.
std::vector<std::vector<IntExpr>> pieces_of(const IntExpr& condition);

/// The distances of a clause, which holds where one of them is >= 0; none for an equality or what has no distance.
std::vector<IntExpr> alternatives_of(const IntExpr& clause);

/// The clause that holds where one of `distances`, at least one, is >= 0.
IntExpr make_clause(const std::vector<IntExpr>& distances);

}  // namespace nestor::nvptx
