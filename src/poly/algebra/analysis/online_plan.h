// What the online rule knows about a leading extremum and the sums that follow it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/values/polynomial.h"
#include "poly/nest/nest.h"

namespace nestor {

/// By which terms may exceed 1 while the leading value stays behind (rule online with a threshold).
inline constexpr double kMostHeld = 0x1p14;

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
/// Ranges of values and this analysis ask each other (a sum of exponentials is bounded by it), so that it is defined above both, in
/// online_analysis.cc.
std::optional<OnlinePlan> analyse_online(const Nest& nest, const std::string& lead, std::string* why = nullptr);

}  // namespace nestor
