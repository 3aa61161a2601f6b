// Kernel builder: one kernel of a launch plan as an LLVM function, and the list of parameters its launcher passes.
#pragma once

#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/simt/plan/block_plan.h"

#include <llvm/IR/Module.h>

#include <vector>

namespace nestor::nvptx {

struct BuiltKernel {
  std::vector<KernelParam> params;
  int threads = 32;
  std::int64_t shared_bytes = 0;
  std::vector<std::string> unproved;  ///< of its block plans: what could not be decided
};

/// The plans of a kernel's bodies: the one with 16-byte accesses and, if those need conditions, the one without.
std::vector<BlockPlan> plan_bodies(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target);

/// Adds the kernel to `module`. Throws InternalError when a plan of its bodies is refuted. Where 16-byte accesses need conditions that are known at launch only, the kernel tests them and holds
/// two bodies.
BuiltKernel build_kernel(llvm::Module& module, const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target);

/// As above from finished plans of its bodies, whatever they are: for tests of what wrong plans do.
BuiltKernel build_kernel(llvm::Module& module, const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target,
                         const std::vector<BlockPlan>& plans);

/// Elements that a workspace buffer has room for along an index: the last one is padded.
IntExpr held_extent(const Buffer& buffer, std::size_t index);

/// Offset of each workspace buffer in bytes, over size parameters; each a multiple of 64.
std::map<int, IntExpr> workspace_layout(const TileProgram& program, IntExpr& total);

}  // namespace nestor::nvptx
