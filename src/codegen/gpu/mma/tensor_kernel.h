// Plans of kernels on tensor cores: the passes in order.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <span>

namespace nestor::nvptx {

/// One pass over a tensor plan.
struct TensorPass {
  const char* name;
  void (*run)(TensorPlan& plan, const NvptxTarget& target);
};

/// The passes, each of which finds what those before it have left.
std::span<const TensorPass> tensor_passes();

/// Plans a kernel whose grid asks for tensor cores. Throws UserError that names the op and what does not fit. Nothing is proved of the
/// result: that is for check_tensor_plan().
TensorPlan plan_tensor(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target);

}  // namespace nestor::nvptx
