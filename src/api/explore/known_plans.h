// Known plans: lists of steps that others found good for a problem, or that its search would try first.
#pragma once

#include "db/database.h"
#include "poly/schedule/order/step.h"

#include <cstdint>
#include <string>
#include <vector>

namespace nestor {

class Space;

/// Who goes on with a step, the most telling first.
enum class PlanSource : std::uint8_t {
  record,     ///< trials of this problem on this device
  neighbour,  ///< the best trial of the operator at other sizes, or of another variant
  search,     ///< what the search would try first
  idea,       ///< nobody: the step is legal, and that is all
};

/// A whole schedule as its steps.
struct KnownPlan {
  PlanSource source;
  std::string name;  ///< "the best trial here, 42", "guess 1 of the search"
  double ms = 0;     ///< its median, or the least that its arithmetic takes; 0: not known
  std::vector<Step> steps;
  std::vector<std::string> texts;  ///< of the steps
};

/// Correct trials of the problem on the device, fastest first.
std::vector<KnownPlan> recorded_plans(const Database& database, const DeviceIdentity& device, const ProblemKey& problem);
/// The best trials of near problems of the same operator.
std::vector<KnownPlan> neighbours_plans(const Database& database, const DeviceIdentity& device, const ProblemKey& problem);
/// Candidates that the space proposes first, without those that it knows not to fit.
std::vector<KnownPlan> first_guesses(const Space& space);

}  // namespace nestor
