// Exponents c (a - m): a multiple of the difference between a leading extremum's own term and its result.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "poly/algebra/analysis/online_plan.h"
#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest.h"

namespace nestor {

/// Notes that the statement uses these terms of the lead, { Statement -> Lead }.
void add_instances(OnlinePlan& plan, const Statement& statement, const isl::map& instances);

/// Recognises such exponents; notes in the plan by what m is multiplied and which of the lead's terms are used.
class LeadExponents {
 public:
  /// All three must outlive it.
  LeadExponents(const Nest& nest, const Statement& lead, OnlinePlan& plan);

  /// c if the exponent is c * (a - m) with the lead's own a at an instance that the lead has seen; else `why` says what it is not.
  std::optional<Monomial> scale(const Statement& statement, const ScalarExpr& exponent, std::string& why);
  /// select(a == m, 1, exp(c (a - m))): the same function of m, made safe for infinite a.
  bool is_guard(const ScalarExpr& expr) const;

  /// Does the nest itself keep m finite in all exponents so far?
  bool guarded() const { return guarded_; }
  void set_guarded(bool guarded) { guarded_ = guarded; }

 private:
  /// The factors between the lead's read and the difference that it stands in.
  struct LeadFactor {
    Monomial value;
    bool subtracted = false;
  };
  /// An exponent as a multiple of m and what stands beside it.
  struct SplitExponent {
    Polynomial rest;
    Monomial scale;
    int ordinal = -1;
  };

  std::optional<int> lead_read(const Statement& statement, const ScalarExpr& expr);
  std::optional<LeadFactor> factor_of_lead(const Statement& statement, const ScalarExpr& expr) const;
  bool note_factor(const Statement& statement, const ScalarExpr& exponent);
  std::optional<std::pair<Monomial, int>> multiple_of_lead(const Statement& statement, const Monomial& term);
  std::optional<SplitExponent> split(const Statement& statement, const ScalarExpr& exponent, std::string& why);

  const Nest& nest_;
  const Statement& lead_;
  OnlinePlan& plan_;
  const Polynomial value_;
  int guarded_reads_ = 0;  ///< of the lead, kept finite by the nest itself
  bool guarded_ = true;    ///< all of those in exponents
};

}  // namespace nestor
