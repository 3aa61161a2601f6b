// Cheap values computed again where they are read, in place of a pass that stores them.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor {

/// Leaves out copies, and maps of a few additions and products, in f32 over tiles in scratch, whose results are read by one or two ops of the same
/// sequence only, over the same box: these compute the value themselves. Nothing is rounded otherwise than before.
TileProgram with_repeated_values(TileProgram program);

}  // namespace nestor
