// A leading value as terms see it where it may be infinite.
#pragma once

#include <optional>

#include "poly/algebra/analysis/online_plan.h"

namespace nestor {

/// m where it is finite, else a number that stays finite when the plan's exponents multiply it: what terms may be computed from, so that
/// they are 0 where a is infinite. Corrections are made from m itself.
ScalarExpr finite_lead(const OnlinePlan& plan, ReductionOp reduction, const ScalarExpr& m);
/// m if `expr` is what finite_lead makes of it, for some plan, or select(m == -inf, x, m) with a number x.
std::optional<ScalarExpr> inside_finite_lead(ReductionOp reduction, const ScalarExpr& expr);

/// May the multiple of a finite m by this factor be infinite?
bool is_multiplied(const Monomial& factor);

}  // namespace nestor
