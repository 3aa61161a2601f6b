// Kernel builder: one planned kernel as an LLVM function, and the list of parameters its launcher passes.
#pragma once

#include "codegen/gpu/kernel_plans.h"

#include <llvm/IR/Module.h>

#include <vector>

namespace nestor::nvptx {

struct BuiltKernel {
  std::vector<KernelParam> params;
  int threads = 32;
  std::int64_t shared_bytes = 0;
};

/// Adds the kernel to `module` as its plans say, whatever they are. Where 16-byte accesses need conditions that are known at launch only,
/// the kernel tests them and holds two bodies.
BuiltKernel build_kernel(llvm::Module& module, const PlannedKernel& planned, const TileProgram& program);

}  // namespace nestor::nvptx
