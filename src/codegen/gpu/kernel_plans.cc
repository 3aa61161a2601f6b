// Plan, pipeline and proof of each kernel, in turn.
#include "codegen/gpu/kernel_plans.h"

#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/mma/pipeline/print_tensor_plan.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/gpu/mma/tensor_kernel.h"
#include "codegen/gpu/simt/block_kernel.h"
#include "codegen/gpu/simt/plan/print_block_plan.h"
#include "codegen/gpu/simt/proof/block_check.h"
#include "codegen/gpu/simt/proof/launch_check.h"
#include "support/debug.h"
#include "support/error.h"

#include <fmt/ranges.h>

namespace nestor {
namespace {

/// Marks among facts what could not be decided.
constexpr const char* kNotProved = "not proved: ";

void check_target(const NvptxTarget& target) {
  if (target.threads < 32 || target.threads > 1024 || target.threads % 32 != 0) {
    user_error("A block of {} threads is not possible: choose a multiple of 32 from 32 to 1024.", target.threads);
  }
  if (target.sm < 80)
    user_error("The GPU back end needs compute capability 8.0 or newer, not {}.{}.", target.sm / 10, target.sm % 10);
}

void prove_launches(const TileProgram& program, const nvptx::LaunchPlan& launches, GpuCertificate& certificate) {
  if (const auto problems = nvptx::check_launches(launches); !problems.empty())
    internal_error("the launches of {} are wrong: {}", program.name, fmt::join(problems, "; "));
  const std::size_t count = launches.kernels.size();
  certificate.blocks.push_back(fmt::format(
      "{} kernel{}: blocks, loops and conditions of the launches run each op of the tile program at its iterations, in its order",
      count, count == 1 ? "" : "s"));
}

void prove_tensor(const nvptx::TensorPlan& plan, GpuCertificate& certificate) {
  const std::string& symbol = plan.kernel->symbol;
  const nvptx::TensorCertificate proof = nvptx::check_tensor_plan(plan);
  if (!proof.violations.empty())
    internal_error("kernel '{}': the plan for tensor cores has no proof: {}", plan.program->name,
                   fmt::join(proof.violations, "; "));
  for (const std::string& fact : proof.proved) certificate.stages.push_back(fmt::format("{}: {}", symbol, fact));
  for (const nvptx::FiniteOperand& operand : nvptx::finite_operands(plan)) {
    certificate.needed.push_back(fmt::format("{}: {}", symbol, operand.why));
    certificate.finite.push_back(operand.tensor);
    certificate.zeroed.push_back({operand.op, operand.tensor});
  }
}

void prove_bodies(const PlannedKernel& planned, GpuCertificate& certificate) {
  const std::string& symbol = planned.kernel->symbol;
  for (std::size_t k = 0; k < planned.bodies.size(); ++k) {
    const nvptx::BlockCertificate proof = nvptx::check_block_plan(planned.bodies[k]);
    if (!proof.violations.empty())
      internal_error("the plan of kernel {} is wrong: {}", symbol, fmt::join(proof.violations, "; "));
    const std::string name = symbol + (planned.bodies.size() > 1 ? k == 0 ? ", where vectors fit" : ", elsewhere" : "");
    for (const std::string& fact : proof.proved) certificate.blocks.push_back(fmt::format("{}: {}", name, fact));
    for (const std::string& open : proof.unproved) {
      certificate.blocks.push_back(fmt::format("{}: {}{}", name, kNotProved, open));
      certificate.unproved.push_back(fmt::format("{}: {}", symbol, open));
    }
  }
}

}  // namespace

std::vector<nvptx::BlockPlan> plan_bodies(const nvptx::KernelPlan& kernel, const TileProgram& program,
                                          const NvptxTarget& target) {
  std::vector<nvptx::BlockPlan> plans{nvptx::plan_block(kernel, program, target, true)};
  // One launch serves both bodies, so both have the same threads.
  if (plans[0].has_conditions()) plans.push_back(nvptx::plan_block(kernel, program, target, false, plans[0].threads));
  return plans;
}

std::shared_ptr<const KernelPlans> plan_kernels(const TileProgram& program, const NvptxTarget& target) {
  const DebugTimer timer("GPU plans");
  check_target(target);
  auto plans = std::make_shared<KernelPlans>();
  plans->target = target;
  plans->launches = nvptx::plan_launches(program, target.threads);
  prove_launches(program, plans->launches, plans->certificate);
  const TileProgram& split = plans->launches.program;
  for (const nvptx::KernelPlan& kernel : plans->launches.kernels) {
    PlannedKernel& planned = plans->kernels.emplace_back();
    planned.kernel = &kernel;
    check_compute_capability(kernel.shape, program.name, target.sm);
    if (kernel.shape.warpgroups > 0) {
      planned.tensor = nvptx::plan_tensor(kernel, split, target);
      prove_tensor(*planned.tensor, plans->certificate);
    } else {
      planned.bodies = plan_bodies(kernel, split, target);
      prove_bodies(planned, plans->certificate);
    }
  }
  return plans;
}

std::string describe(const KernelPlans& plans) {
  std::string text;
  for (const PlannedKernel& planned : plans.kernels) {
    if (planned.tensor) text += nvptx::describe(*planned.tensor);
    for (std::size_t k = 0; k < planned.bodies.size(); ++k) {
      if (planned.bodies.size() > 1)
        text += k == 0 ? "where sizes and addresses fit vectors:\n" : "for all other sizes and addresses:\n";
      text += nvptx::describe(planned.bodies[k]);
    }
  }
  return text;
}

}  // namespace nestor
