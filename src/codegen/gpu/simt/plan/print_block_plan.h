// Block plans as text.
#pragma once

#include "codegen/gpu/simt/plan/block_plan.h"

#include <string>

namespace nestor::nvptx {

/// Threads, where each scratch buffer lives, then the tree: loops, ops with their layouts, barriers, copies ahead.
std::string describe(const BlockPlan& plan);

}  // namespace nestor::nvptx
