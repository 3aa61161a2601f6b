// Block plans of kernels: the passes in order.
#pragma once

#include "codegen/gpu/simt/plan/block_plan.h"

#include <span>

namespace nestor::nvptx {

/// Plans one kernel. `vector_memory` asks for 16-byte global accesses wherever the shapes allow, under the conditions noted in the
/// plan; without it the plan is valid for all sizes and addresses. `threads` > 0: exactly so many. Throws UserError when scratch
/// does not fit.
BlockPlan plan_block(const KernelPlan& kernel, const TileProgram& program, const NvptxTarget& target, bool vector_memory,
                     int threads = 0);

/// One pass over a block plan. `exact_threads` > 0: the plan has so many threads, whatever its shape says.
struct BlockPass {
  const char* name;
  void (*run)(BlockPlan& plan, const NvptxTarget& target, int exact_threads);
};

/// The passes of plan_block, each of which works on what those before it have left.
std::span<const BlockPass> block_passes();

}  // namespace nestor::nvptx
