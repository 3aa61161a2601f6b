// Sizes and data of runs: what a candidate is made for, and the small ragged sizes that it is tried at.
#pragma once

#include "autotune/tensors/random_fill.h"
#include "soak/case.h"
#include "soak/try_case.h"

#include <vector>

namespace nestor::soak {

/// Elementary operations that evaluating the definition once may take, at most.
inline constexpr double kReferenceLimit = 2e8;

/// Sizes that candidates are drawn for: near the defaults, ragged or round, as large as the engine allows.
Sizes draw_tuned_sizes(const Nest& nest, Engine engine, CounterRandom& random);

/// Runs at the tuned sizes, where that is cheap enough, and at several small ragged sizes, with equal values for the sizes that
/// compilation fixes; the definition is evaluated for each. `special`: some inputs hold infinities or NaN.
std::vector<PreparedRun> draw_runs(const Nest& nest, const Sizes& tuned, Engine engine, bool special, CounterRandom& random);

}  // namespace nestor::soak
