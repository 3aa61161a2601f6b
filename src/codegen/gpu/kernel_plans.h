// Plans of a program's kernels with their certificate: what is compiled, printed and proved is this one value.
#pragma once

#include "codegen/gpu/gpu_certificate.h"
#include "codegen/gpu/kernel/kernel_plan.h"
#include "codegen/gpu/mma/plan/tensor_plan.h"
#include "codegen/gpu/simt/plan/block_plan.h"
#include "codegen/gpu/target/gpu_target.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// How the threads of one kernel share its work.
struct PlannedKernel {
  const nvptx::KernelPlan* kernel = nullptr;
  std::optional<nvptx::TensorPlan> tensor;  ///< on tensor cores; else there are
  std::vector<nvptx::BlockPlan> bodies;     ///< the one with 16-byte accesses and, if those need conditions, the one without
};

/// Plans point into `launches`: the whole is made once and neither copied nor moved.
struct KernelPlans {
  KernelPlans() = default;
  KernelPlans(const KernelPlans&) = delete;
  KernelPlans& operator=(const KernelPlans&) = delete;

  NvptxTarget target;
  nvptx::LaunchPlan launches;
  std::vector<PlannedKernel> kernels;  ///< in the order of launches.kernels
  GpuCertificate certificate;
};

/// Plans every kernel and proves the plans. Throws UserError where a kernel cannot be planned, InternalError where a plan is refuted.
std::shared_ptr<const KernelPlans> plan_kernels(const TileProgram& program, const NvptxTarget& target);

/// The plans of a kernel without tensor cores.
std::vector<nvptx::BlockPlan> plan_bodies(const nvptx::KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target);

/// All plans as text: values and where they live, layouts, stages, barriers, the events of every role.
std::string describe(const KernelPlans& plans);

}  // namespace nestor
