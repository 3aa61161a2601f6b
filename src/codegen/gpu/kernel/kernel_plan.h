// Launch plan: a tile program cut into kernels, each with a grid of blocks, and the loops of the launcher around them.
#pragma once

#include "codegen/tile/tile_program.h"
#include "support/knobs.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

/// One dimension of a grid: the block with coordinate k runs with var = lower + step*k, 0 <= k < count.
struct GridLoop {
  std::string var;
  IntExpr lower;
  IntExpr count;
  std::int64_t step = 1;
};

/// A loop of the launcher: its variable arrives as a parameter of the kernels in it.
struct LaunchLoop {
  std::string var;
  IntExpr lower, upper;
};

/// Names of the integers that every kernel can refer to: its block's (or cluster's) number, and how many there are.
inline constexpr const char* kBlockNumber = "$block";
inline constexpr const char* kBlockCount = "$blocks";

struct KernelPlan {
  std::string symbol;
  GridShape shape;
  std::vector<GridLoop> grid;            ///< linearised over blockIdx.x, the last one fastest
  std::vector<LaunchLoop> launch_loops;  ///< around it, outermost first
  IntExpr condition;                     ///< of its launches, over sizes and launch loops: without it there are no blocks
  TileTree body;                         ///< what one block does
  bool waits = false;     ///< blocks may be placed before the kernel before has ended: they wait for that at their start
  bool triggers = false;  ///< the kernel after it may place its blocks once all of this one's have started
};

struct LaunchPlan {
  TileProgram program;  ///< sizes fixed, scratch outside of blocks moved to the workspace
  std::vector<KernelPlan> kernels;
  std::vector<LaunchNode> launches;  ///< loops and kernels in order; a kernel's node has its symbol and grid only
};

}  // namespace nestor::nvptx
