// Tensor guesses: choices for tensor cores that are worth trying first.
#pragma once

#include "autotune/space/gpu/axes/tensor_axes.h"
#include "autotune/space/space.h"
#include "autotune/space/space_limits.h"

#include <vector>

namespace nestor {

/// Choices worth trying first, best guess first, all of which fit.
std::vector<NamedValues> likely_tensor_choices(const TensorAxes& axes, const GpuLimits& limits);

}  // namespace nestor
