// What a kernel on tensor cores may ask for, and its passes.
#include "codegen/gpu/mma/tensor_kernel.h"

#include "codegen/gpu/mma/pipeline/pipeline_passes.h"
#include "codegen/gpu/mma/pipeline/print_tensor_plan.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "support/debug.h"
#include "support/error.h"

#include <fmt/format.h>

namespace nestor::nvptx {
namespace {

void check_pack(const TensorPlan& plan, const NvptxTarget& target) {
  if (plan.pack > 1 && plan.cores == TensorCores::mma)
    user_error(
        "Kernel '{}': a tile of rows of two loops, {} of one for each of the other, needs the tensor copies of "
        "compute capability 9.0 or newer, not {}.{}: do not split the outer one of the two.",
        plan.program->name, plan.pack, target.sm / 10, target.sm % 10);
}

void check_cluster(const TensorPlan& plan, const NvptxTarget& target) {
  if (plan.cluster() == 1) return;
  if (plan.cores == TensorCores::mma)
    user_error("Kernel '{}': clusters of blocks need compute capability 9.0 or newer, not {}.{}: leave the step out.",
               plan.program->name, target.sm / 10, target.sm % 10);
  if (plan.claims())
    user_error(
        "Kernel '{}': with claims a block claims items for itself, and here clusters of {} blocks take items together: leave out "
        "claims or cluster.",
        plan.program->name, plan.cluster());
}

/// What the kernel's shape asks for, the tensor cores have.
void check_shape(TensorPlan& plan, const NvptxTarget& target) {
  const GridShape& shape = plan.kernel->shape;
  if (plan.cores == TensorCores::mma && (shape.turns != 0 || shape.claims != 0 || shape.overlap > 1))
    user_error(
        "Kernel '{}': {} for products that run while their group goes on, as those of compute capability 9.0 do, not {}.{}: "
        "leave "
        "the step out.",
        plan.program->name,
        shape.turns != 0    ? "turns are"
        : shape.claims != 0 ? "claims are"
                            : "chains that overlap one by one are",
        target.sm / 10, target.sm % 10);
  check_cluster(plan, target);
}

constexpr TensorPass kPasses[] = {
    {"shape", check_shape},
    {"tiles",
     [](TensorPlan& plan, const NvptxTarget& target) {
       find_tiles(plan, plan.kernel->body);
       check_pack(plan, target);
     }},
    {"masks", [](TensorPlan& plan, const NvptxTarget&) { plan_masks(plan); }},
    {"whole terms", [](TensorPlan& plan, const NvptxTarget&) { require_whole_terms(plan); }},
    {"sums", [](TensorPlan& plan, const NvptxTarget&) { plan_sums(plan, plan.kernel->body); }},
    {"events", [](TensorPlan& plan, const NvptxTarget&) { plan_events(plan, plan.kernel->body); }},
    {"sharing", [](TensorPlan& plan, const NvptxTarget&) { plan_sharing(plan); }},
    {"copies",
     [](TensorPlan& plan, const NvptxTarget&) {
       if (plan.cores == TensorCores::mma) plan_copies(plan);
     }},
    {"stores", [](TensorPlan& plan, const NvptxTarget&) { plan_stores(plan); }},
    {"places", place_rings},
};

}  // namespace

std::span<const TensorPass> tensor_passes() { return kPasses; }

TensorPlan plan_tensor(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target) {
  TensorPlan plan;
  plan.program = &program;
  plan.kernel = &kernel;
  plan.cores = target.sm < 90 ? TensorCores::mma : TensorCores::wgmma;
  plan.groups = kernel.shape.groups;
  for (const TensorPass& pass : tensor_passes()) {
    pass.run(plan, target);
    if (debug_enabled(DebugSwitch::plans)) debug_log(DebugSwitch::plans, fmt::format("after {}:\n{}", pass.name, describe(plan)));
  }
  return plan;
}

}  // namespace nestor::nvptx
