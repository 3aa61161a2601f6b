// What an input of a fuzz target reaches, in builds with NESTOR_FUZZ_COVERAGE (GCC calls a function at each block of ours). Without, nothing is seen.
#pragma once

#include <cstddef>

namespace nestor::fuzz {

/// Forgets what was reached since the last input.
void forget_reached();

/// Whether something was reached since forget_reached() that no input before reached, or reached about as often.
bool reached_news();

/// Pairs of blocks that were reached one after the other, by all inputs.
std::size_t pairs_reached();

}  // namespace nestor::fuzz
