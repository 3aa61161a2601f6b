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

/// What the kernel's shape asks for goes together.
void check_shape(TensorPlan& plan, const NvptxTarget&) {
  if (plan.cluster() > 1 && plan.dynamic_scheduler())
    user_error(
        "Kernel '{}': with a dynamic scheduler a block draws work tiles for itself, and here clusters of {} blocks take them "
        "together: "
        "leave out dynamic_scheduler or cluster.",
        plan.program->name, plan.cluster());
  if (!plan.ping_pong_tiles()) return;
  if (!plan.persistent())
    user_error(
        "Kernel '{}': with ping_pong_tiles warpgroups take work tiles in turn, and a block that does not stay has one: add "
        "persistent.",
        plan.program->name);
  if (plan.dynamic_scheduler() || plan.ping_pong())
    user_error(
        "Kernel '{}': with ping_pong_tiles each warpgroup knows its work tiles, and has its turn once in each: leave out {}.",
        plan.program->name, plan.ping_pong() ? "ping_pong" : "dynamic_scheduler");
}

/// A warpgroup goes past the tiles of the others' work tiles by their number, which must be that of its own.
void check_turns(TensorPlan& plan, const NvptxTarget&) {
  if (!plan.ping_pong_tiles()) return;
  for (const GridLoop& loop : plan.kernel->grid) {
    if (uses_variable(plan.producer, loop.var))
      user_error(
          "Kernel '{}': with ping_pong_tiles all work tiles have as many iterations, and here {} tells how many: leave it out.",
          plan.program->name, loop.var);
  }
}

constexpr TensorPass kPasses[] = {
    {"shape", check_shape},
    {"tiles",
     [](TensorPlan& plan, const NvptxTarget& target) {
       find_tiles(plan, plan.kernel->body);
       check_pack(plan, target);
     }},
    {"visits", [](TensorPlan& plan, const NvptxTarget&) { plan_visits(plan); }},
    {"masks", [](TensorPlan& plan, const NvptxTarget&) { plan_masks(plan); }},
    {"whole terms", [](TensorPlan& plan, const NvptxTarget&) { require_whole_terms(plan); }},
    {"column tests", [](TensorPlan& plan, const NvptxTarget&) { plan_column_tests(plan); }},
    {"sums", [](TensorPlan& plan, const NvptxTarget&) { plan_sums(plan, plan.kernel->body); }},
    {"events", [](TensorPlan& plan, const NvptxTarget&) { plan_events(plan, plan.kernel->body); }},
    {"turns", check_turns},
    {"sharing", [](TensorPlan& plan, const NvptxTarget&) { plan_sharing(plan); }},
    {"copies",
     [](TensorPlan& plan, const NvptxTarget&) {
       if (plan.cores == TensorCores::mma) plan_copies(plan);
     }},
    {"stores", [](TensorPlan& plan, const NvptxTarget&) { plan_stores(plan); }},
    {"memory", [](TensorPlan& plan, const NvptxTarget&) { check_memory(plan); }},
    {"places", place_rings},
    {"test reads", [](TensorPlan& plan, const NvptxTarget&) { plan_test_reads(plan); }},
};

}  // namespace

std::span<const TensorPass> tensor_passes() { return kPasses; }

TensorPlan plan_tensor(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target) {
  TensorPlan plan;
  plan.program = &program;
  plan.kernel = &kernel;
  plan.cores = target.sm < 90 ? TensorCores::mma : TensorCores::wgmma;
  plan.warpgroups = kernel.shape.warpgroups;
  for (const TensorPass& pass : tensor_passes()) {
    pass.run(plan, target);
    if (debug_enabled(DebugSwitch::plans)) debug_log(DebugSwitch::plans, fmt::format("after {}:\n{}", pass.name, describe(plan)));
  }
  return plan;
}

}  // namespace nestor::nvptx
