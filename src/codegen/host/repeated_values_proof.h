// The proof that values computed again are the ones that were stored.
#pragma once

#include "codegen/tile/tile_program.h"

namespace nestor {

/// Shows that `repeated` computes what `program` does: it lacks some maps only, and where their results were read it has their values at
/// the same points, of operands that nothing has overwritten since. Shares no code with with_repeated_values.
/// Throws InternalError with the op that differs where that is not so.
void prove_repeated_values(const TileProgram& program, const TileProgram& repeated);

}  // namespace nestor
