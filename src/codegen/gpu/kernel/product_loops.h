// Loops around products: what a schedule leaves inside an op for the sake of the CPU's code stands outside of it for tensor cores, and is one
// loop.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor::nvptx {

/// The tree with every sum of products over several reduced dims (a long sum in tiles) as loops over all of them but the innermost around
/// a sum over that one. Their values are read for each iteration of these loops.
TileTree with_product_loops(const TileTree& tree);

/// The tree with each sum that only loops around it add up (every point of the op has an element of a tile of its own) as what it is: a map
/// of the element before and the term.
TileTree with_elementwise_sums(const TileTree& tree, const std::vector<Buffer>& buffers);

/// The tree with serial loops that hold nothing but another one as one loop in the same order, where the inner one has a number of
/// iterations that is known: of n the t-th iteration is that at t / n outside and t mod n inside.
TileTree with_merged_loops(const TileTree& tree);

}  // namespace nestor::nvptx
