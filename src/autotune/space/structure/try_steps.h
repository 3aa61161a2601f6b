// Steps that may be illegal.
#pragma once

#include "poly/schedule/schedule.h"

#include <optional>
#include <vector>

namespace nestor {

/// The schedule with `step` applied, or nothing when it is illegal.
std::optional<Schedule> try_step(const Schedule& schedule, const Step& step);
std::optional<Schedule> try_steps(const Schedule& schedule, const std::vector<Step>& steps);

}  // namespace nestor
