// Spreads an op that stands outside of any parallel loop over a grid of blocks.
#pragma once

#include "codegen/gpu/kernel/kernel_plan.h"

namespace nestor::nvptx {

struct Distribution {
  std::vector<GridLoop> grid;
  TileOp op;  ///< the part of one block
};

/// `op` has at least one parallel dim and no leading sequential one.
Distribution distribute(const TileOp& op, const TileProgram& program, int threads);

}  // namespace nestor::nvptx
