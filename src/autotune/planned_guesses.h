// Guesses of a GPU's space that promise to be much faster than the first one, by what their kernels have to do at least.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/trial/base_schedules.h"
#include "poly/nest/nest.h"

#include <vector>

namespace nestor {

/// A few of the guesses, the best first, whose kernels have far less to do at each multiprocessor than those of the first one that can be planned:
/// a first guess may leave most threads idle. Empty where the first is as good, or for tensor cores, whose work is not told apart so. Takes
/// about a second at most. `limits` are a GPU's.
std::vector<Point> much_better_guesses(const Space& space, BaseSchedules& schedules, const Sizes& sizes,
                                       const SpaceLimits& limits, const std::vector<Point>& guesses);

}  // namespace nestor
