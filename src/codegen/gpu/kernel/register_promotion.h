// Accumulators: sums in memory of the whole grid that a serial loop of a block adds to move to scratch while the loop runs.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor::nvptx {

/// The body of one block in which every such sum starts in a scratch buffer of its own, which is copied to its place after the
/// loop. A sum moves when one op of the block starts it right before the loop, over the same elements, and nothing else touches
/// it in the loop; its elements are then the block's own. Scratch buffers are added to `buffers`, of `room` elements in all at
/// most.
TileTree promote_to_registers(const TileTree& body, std::vector<Buffer>& buffers, std::int64_t room);

}  // namespace nestor::nvptx
