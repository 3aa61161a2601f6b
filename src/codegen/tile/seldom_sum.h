// SeldomSum: a sum whose terms count only where a condition has an outcome, whatever the term. Found once, for the space and for tile ops.
#pragma once

#include "poly/nest/nest.h"

#include <optional>

namespace nestor {

/// A sum of condition ? term : 0, or the other way round.
struct SeldomSum {
  ScalarExpr condition;
  bool adds = true;  ///< the outcome where terms are added up
  ScalarExpr term;
};

/// The parts of a value of f32 that is added up; nullopt: it has another form.
std::optional<SeldomSum> seldom_sum_of(const ScalarExpr& value, std::optional<ReductionOp> reduction);

/// Is the statement such a sum over 16-bit tensors, and others beside them, whose condition reads f32 values of one for each of its results?
bool sums_seldom(const Statement& statement);

}  // namespace nestor
