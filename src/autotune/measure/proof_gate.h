// The gate before a candidate is run: its tile program must be proved.
#pragma once

#include "autotune/measure/measurer.h"
#include "codegen/tile/tile_program.h"

#include <optional>

namespace nestor {

/// What becomes of a candidate whose program is not proved: wrong (a bug of Nestor, with the counterexample) or unproved (with what stayed
/// open). Nothing when it is proved. `compile_ms`: what the candidate has taken so far.
std::optional<TrialOutcome> outcome_without_proof(const TileProgram& program, const Schedule& schedule, double compile_ms);

}  // namespace nestor
