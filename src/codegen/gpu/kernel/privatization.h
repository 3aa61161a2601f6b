// Private tiles: temporaries in memory of the whole grid that one block at a time works on, such as the running results of a part of a
// reduction, move to scratch while it does.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor::nvptx {

/// The body of one block in which every such temporary is a scratch buffer of its own, which is copied to its place at the end if
/// another kernel of `program` uses it. A temporary moves when all accesses in the block have one origin and one dim of their op for each
/// index that runs, and the block writes its elements before it uses them: all of them at the start, or anew in each iteration of its loop.
/// Sums of products of matrices that begin and end within a loop, or under a condition, are stored there. Dims of ops that have one value
/// are left out. What a block only copies there does not move. Scratch buffers are added to those of `program`, whose tree `body` is a part of.
TileTree privatized(const TileTree& body, TileProgram& program);

}  // namespace nestor::nvptx
