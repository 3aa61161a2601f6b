// GPU back end: a tile program to PTX, one thread block an iteration of its gpu_block (or parallel) loops.
#pragma once

#include "codegen/gpu/gpu_certificate.h"
#include "codegen/gpu/target/gpu_target.h"
#include "codegen/tile/tile_program.h"
#include "support/launch_recipe.h"

#include <memory>
#include <string>

namespace nestor {

struct KernelPlans;

struct CompiledNvptx {
  CompiledKernel kernel;                     ///< code: PTX; recipe.launches filled
  std::string ir;                            ///< LLVM IR after optimisation, on request
  std::shared_ptr<const KernelPlans> plans;  ///< that the code follows (kernel_plans.h)
  GpuCertificate certificate;                ///< of these plans
};

/// Throws UserError when a scratch buffer has no constant size or the block's buffers exceed the shared memory, InternalError when the plan
/// of a kernel is refuted.
CompiledNvptx compile_nvptx(const TileProgram& program, const NvptxTarget& target);
/// The same by plans of the program that were made before (plan_kernels()): who looks at them first may spare the code.
CompiledNvptx compile_planned(const TileProgram& program, std::shared_ptr<const KernelPlans> plans);

/// What is proved of the kernels of a program, without their code. Throws as compile_nvptx().
GpuCertificate certify_kernels(const TileProgram& program, const NvptxTarget& target);

/// The plans of a program's kernels as text. Throws as compile_nvptx().
std::string describe_kernels(const TileProgram& program, const NvptxTarget& target);

}  // namespace nestor
