// Which of the free sizes are fixed before a search on a GPU, so that its likely candidates fit.
#pragma once

#include "autotune/fixed_spaces.h"

#include <set>
#include <string>

namespace nestor {

/// The fixed sizes, and of those left free the ones without which no likely candidate fits. Where nothing does, what is free stays free:
/// checks are made at small sizes then. Where guesses start on tensor cores, or the best one lacks a size, that must fit: others are slower.
/// `limits` are a GPU's. `planned`: the first guess that seems to fit must also have kernels that can be planned.
std::set<std::string> sizes_that_help(FixedSpaces& spaces, const std::set<std::string>& fixed, const SpaceLimits& limits,
                                      bool planned);

}  // namespace nestor
