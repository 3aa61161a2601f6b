// Random schedules: random rules, then random steps, as far as they are legal.
#pragma once

#include "poly/schedule/schedule.h"

#include <cstdint>

namespace nestor::soak {

/// Some random steps behind `start`. `sm`: compute capability times ten of the target, 0 for the host: which steps are drawn depends on
/// it. Illegal ones are left out, so that the result is always a schedule. `rules`: also draws rules, if `start` has no loop step yet.
Schedule random_schedule(Schedule start, std::uint64_t seed, int sm, bool rules);

}  // namespace nestor::soak
