// Sums of several products in launches: one op for each.
#pragma once

#include "codegen/tile/tile_program.h"

#include <vector>

namespace nestor::nvptx {

/// The program's op as launches take it that begin with `have`: itself, or, of a sum of several addends that `have` is not, one op for each in
/// their order. In place of a sum that goes on, the first of these may start another buffer, that of `have`, in which they add up (adds_parts).
std::vector<TileOp> parts_of(const TileOp& want, const TileOp& have);

/// Is `add` the map that adds the elements which `first`, the first of such parts, has started to another buffer's of the same indices? It runs
/// over all of them, and where the guard of `first` holds, if that tells no terms apart; elements without terms are 0.
bool adds_parts(const TileOp& first, const TileOp& add);

}  // namespace nestor::nvptx
