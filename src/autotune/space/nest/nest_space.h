// NestSpace: the candidates of a nest, derived from its structure alone.
#pragma once

#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"
#include "autotune/trial/base_schedules.h"

#include <memory>

namespace nestor {

/// `schedules` holds the nest whose schedules are searched, and must outlive the space; `sizes` are complete.
std::unique_ptr<Space> make_nest_space(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits);

}  // namespace nestor
