// The passes of a block plan.
#include "codegen/gpu/simt/block_kernel.h"

#include "codegen/gpu/simt/plan/print_block_plan.h"
#include "support/debug.h"

#include <fmt/format.h>

namespace nestor::nvptx {
namespace {

using Target = NvptxTarget;

constexpr BlockPass kPasses[] = {
    {"normalise", [](BlockPlan& plan, const Target&, int) { normalise(plan); }},
    {"followers", [](BlockPlan& plan, const Target&, int) { gather_followers(plan); }},
    {"persistence", [](BlockPlan& plan, const Target&, int) { reside(plan); }},
    {"roles", [](BlockPlan& plan, const Target&, int) { choose_roles(plan); }},
    {"chosen terms", [](BlockPlan& plan, const Target&, int) { choose_terms(plan); }},
    {"layouts", [](BlockPlan& plan, const Target& target, int exact) { choose_layouts(plan, target.threads, exact); }},
    {"scattered terms", [](BlockPlan& plan, const Target&, int) { settle_scattered(plan); }},
    {"placement",
     [](BlockPlan& plan, const Target&, int) {
       place_scratch(plan);
       settle_scattered(plan);  // with the layouts of ops that touch no registers
     }},
    {"vectors", [](BlockPlan& plan, const Target&, int) { choose_vectors(plan); }},
    {"recurrences", [](BlockPlan& plan, const Target&, int) { carry_values(plan); }},
    {"own sums", [](BlockPlan& plan, const Target&, int) { keep_sums(plan); }},
    {"windows", [](BlockPlan& plan, const Target&, int) { choose_windows(plan); }},
    {"fused reductions", [](BlockPlan& plan, const Target&, int) { join_reductions(plan); }},
    {"joined passes", [](BlockPlan& plan, const Target&, int) { join_passes(plan); }},
    {"shared memory", [](BlockPlan& plan, const Target& target, int) { allocate_shared(plan, target); }},
    {"barriers", [](BlockPlan& plan, const Target&, int) { insert_barriers(plan); }},
};

}  // namespace

std::span<const BlockPass> block_passes() { return kPasses; }

BlockPlan plan_block(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target, bool vector_memory,
                     int threads) {
  const int exact = threads > 0 ? threads : kernel.shape.threads;
  BlockPlan plan;
  plan.program = &program;
  plan.kernel = &kernel;
  plan.cluster = kernel.shape.cluster;
  plan.threads = exact > 0 ? exact : target.threads;
  plan.vector_memory = vector_memory;
  for (const BlockPass& pass : block_passes()) {
    pass.run(plan, target, exact);
    if (debug_enabled(DebugSwitch::plans)) debug_log(DebugSwitch::plans, fmt::format("after {}:\n{}", pass.name, describe(plan)));
  }
  return plan;
}

}  // namespace nestor::nvptx
