// Tensor plans as text.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <string>

namespace nestor::nvptx {

/// Warpgroups, fragments in registers, circular buffers in shared memory with their stages, ops, then the events of every role.
std::string describe(const TensorPlan& plan);

}  // namespace nestor::nvptx
