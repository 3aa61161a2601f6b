// Proof that kernels and launches run a tile program: every op at its iterations, in its order, whatever was moved to grids, to the launcher
// or to scratch buffers on the way.
//
// The argument. Ops of the launches, walked in order, are those of the program in order; what is more is a store of a moved buffer. Loops
// of the launcher, loops over blocks (their counts as formulas of the grid), loops of a kernel's body and dims together give an op the
// values that the program gives it: as they stand, in steps counted by trips, or cut in tiles. Ops that share a sequential loop in the program share
// it in the launches. That blocks do not depend on each other is proved of each kernel's plan (block_check.h). An element that an access finds
// in a moved buffer is the same by every access; its store runs over the elements that its first op writes, in the same loops, and nothing
// between the two touches the place it is stored to.
#pragma once

#include "codegen/gpu/kernel/kernel_plan.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

/// What is wrong; empty: nothing.
std::vector<std::string> check_launches(const LaunchPlan& plan);

}  // namespace nestor::nvptx
