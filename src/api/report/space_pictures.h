// Iteration spaces as pictures: which cells of two loops are run in full, in part or never, and what depends on what.
#pragma once

#include "poly/schedule/schedule.h"

#include <nlohmann/json.hpp>

namespace nestor {

/// Cells of one picture along each axis; what lies beyond them is left out, and said so by `count`.
inline constexpr std::int64_t kPictureCells = 128;

/// One entry for statements with the same cells: {"statements", "loops": [{"name", "dim", "scale", "offset", "kind", "first", "count"}],
/// "pairs": [{"a", "b": positions in loops, a outside b; "rows", "columns": cells drawn; "cells": runs, e.g. "f12p1e3";
///            "arrows": [{"text", "tensor", "deltas": [[da, db]], "far": reaches further as well}]}]}.
/// A cell is an iteration of both loops: empty (e) when no instance runs there, partial (p) when an iteration of the other loops over tiles
/// runs less than its tile holds, else full (f). `sizes` are complete. Throws UserError when isl takes too long.
nlohmann::json spaces_of(const Schedule& schedule, const Sizes& sizes);

}  // namespace nestor
