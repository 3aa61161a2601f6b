// Schedules from the texts of their steps.
#pragma once

#include "poly/schedule/schedule.h"
#include "support/error.h"

#include <string>
#include <vector>

namespace nestor::testing {

inline Schedule apply_steps(Schedule schedule, const std::vector<std::string>& steps) {
  for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
  return schedule;
}

inline Schedule scheduled(const Nest& nest, const std::vector<std::string>& steps) { return apply_steps(Schedule(nest), steps); }

/// Why the step is refused; "": it is not.
inline std::string refusal_of(const Schedule& schedule, const std::string& step) {
  try {
    schedule.apply(parse_step(step));
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace nestor::testing
