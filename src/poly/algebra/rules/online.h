// What the online rule makes of its plan: corrections and composites; the split rule builds on it.
#pragma once

#include <string>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/composite.h"
#include "poly/nest/nest.h"

namespace nestor {

/// r after the leading value has moved from m_old to m_new; all of them expressions.
ScalarExpr online_correction(const Monomial& degree, ScalarOp base, const ScalarExpr& r, const ScalarExpr& m_old,
                             const ScalarExpr& m_new);

/// What r is multiplied by, where m moves.
ScalarExpr online_factor(const Monomial& degree, ScalarOp base, const ScalarExpr& m_old, const ScalarExpr& m_new);
/// The same for a follower once m is final and nothing follows: NaN where m, or its multiple in the exponents, is infinite, as in the
/// definition.
ScalarExpr final_factor(const OnlinePlan& plan, const std::string& follower, const ScalarExpr& m_old, const ScalarExpr& m_new);
/// The composite of a plan. `threshold`: 0, or one for which there is no objection (Composite::threshold).
Composite online_composite(const Nest& nest, const OnlinePlan& plan, double threshold = 0);

/// Why the leading value may not stay behind the extremum; empty when it may.
std::string objection_to_threshold(const Nest& nest, const OnlinePlan& plan);

/// True where rule online applies to the lead and its extremum may stay behind.
bool may_stay_behind(const Nest& nest, const std::string& lead);

/// Gives followers with inlined phi their own mediator where that saves work, keeps statements outside of the composite from reading its
/// terms by giving it private copies of the mediators, and lets readers of its sums see NaN where all terms of a row are infinite. Throws
/// UserError where the last is not possible.
Nest prepare_online(const Nest& nest, const std::string& lead);

}  // namespace nestor
