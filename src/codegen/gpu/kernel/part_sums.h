// Sums of several products: products of parts (rule bf16x6), one after the other.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor::nvptx {

/// Is the op a sum of products of matrices, or of several at once?
bool sums_products(const TileOp& op);

/// The tree with each op that adds up several products as one op for each of them, in the order of the value. What starts before them, and
/// so goes on from iteration to iteration, gets their sum at once, from a tile of its own, which is added to `program`: small products do
/// not vanish beside it, and it rounds to nearest, which sums of tensor cores do not.
TileTree with_single_products(const TileTree& tree, TileProgram& program);

}  // namespace nestor::nvptx
