// What the online rule knows about a leading extremum; the split rule builds on it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/values/polynomial.h"
#include "poly/nest/composite.h"
#include "poly/nest/nest.h"

namespace nestor {

/// A leading maximum (or minimum) m and the statements that are homogeneous in phi = exp(c (a - m)).
struct OnlinePlan {
  std::string lead;
  std::string lead_tensor;
  std::vector<std::string> mediators;              ///< in original order; only those that a follower needs
  std::vector<std::string> followers;              ///< in original order
  std::map<std::string, Monomial> degree;          ///< of each mediator and follower: its value scales as exp(-degree * m)
  std::map<std::string, ScalarOp> base;            ///< exp or exp2, for each of them
  std::map<std::string, isl::map> lead_instances;  ///< { Statement -> Lead } with the lead's a that its exponent uses
  std::map<std::string, isl::map> lead_elements;   ///< { element of its result -> element of the lead's tensor }
  /// A product of numbers and scalars by which an exponent multiplies m before it subtracts it; 1 where it does not.
  std::vector<Monomial> lead_factors;
  /// Terms may be -inf (+inf for a minimum), and the nest itself does not keep m finite where all terms so far are.
  bool infinite_terms = false;
  /// So may all terms of a row, and m with them: mediators must see finite_lead.
  bool masked = false;
};

/// Analyses the nest around the lead without changing it. nullopt when the rule does not apply; then `why` says which side
/// condition fails.
std::optional<OnlinePlan> analyse_online(const Nest& nest, const std::string& lead, std::string* why = nullptr);

/// m where it is finite, else a number that stays finite when the plan's exponents multiply it: what terms may be computed from, so that
/// they are 0 where a is infinite. Corrections are made from m itself.
ScalarExpr finite_lead(const OnlinePlan& plan, ReductionOp reduction, const ScalarExpr& m);
/// m if `expr` is what finite_lead makes of it, for some plan.
std::optional<ScalarExpr> inside_finite_lead(ReductionOp reduction, const ScalarExpr& expr);

/// r after the leading value has moved from m_old to m_new; all of them expressions.
ScalarExpr online_correction(const Monomial& degree, ScalarOp base, const ScalarExpr& r, const ScalarExpr& m_old,
                             const ScalarExpr& m_new);

/// What r is multiplied by, where m moves.
ScalarExpr online_factor(const Monomial& degree, ScalarOp base, const ScalarExpr& m_old, const ScalarExpr& m_new);
/// The same for a follower once m is final and nothing follows: NaN where m, or its multiple in the exponents, is infinite, as in the
/// definition.
ScalarExpr final_factor(const OnlinePlan& plan, const std::string& follower, const ScalarExpr& m_old, const ScalarExpr& m_new);
/// May the multiple of a finite m by this factor be infinite?
bool is_multiplied(const Monomial& factor);

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
