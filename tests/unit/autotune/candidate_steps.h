// What a candidate's steps are.
#pragma once

#include "autotune/space/space.h"

#include <algorithm>
#include <string>

namespace nestor::testing {

/// How many of the candidate's steps have the name.
inline int count_steps(const Candidate& candidate, const std::string& name) {
  return static_cast<int>(
      std::count_if(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) { return step.name == name; }));
}

}  // namespace nestor::testing
