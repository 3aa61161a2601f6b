// Ops on the same rows, a strip of rows at a time: what one op leaves of them is in the first cache when the next one reads it.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor {

inline constexpr std::int64_t kStripBytes = 16 << 10;  ///< half of the smallest first cache: the rest is for other operands

/// Rows are the values of a parallel dim that has the same bounds in several ops of one sequence. Such ops run strip by strip, in a loop
/// of their own. Every two of them must meet in elements of the same row only, and the tiles that they hand on must be larger than
/// `bytes`. An op may pass those between it and the others if it meets none of them in memory.
/// Products stay as they are: they pack operands for a whole tile. The ops of a composite's step stay together, in a strip or without.
TileProgram in_row_strips(TileProgram program, std::int64_t bytes = kStripBytes);

}  // namespace nestor
