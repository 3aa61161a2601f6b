// Tensor fit: do a choice's tiles find room in the registers and the shared memory of a block?
#pragma once

#include "autotune/space/gpu/tensor_axes.h"
#include "autotune/space/gpu/tensor_steps.h"
#include "autotune/space/space_limits.h"

#include <string>

namespace nestor {

/// Why the registers or the shared memory of a block cannot hold the choice's tiles; empty when they can.
std::string tensor_infeasible(const TensorAxes& axes, const TensorChoice& choice, const GpuLimits& limits);

}  // namespace nestor
