// An isl computation that may be given up: what follows has another way, or does without.
#pragma once

#include <cstdint>
#include <functional>

namespace nestor {

/// Runs `compute` with so many isl operations at most. False: it took more, and what it assigned is not to be used. Other failures, the
/// time limit of a computation around it among them, pass through as isl::exception.
bool isl_attempt(std::uint64_t operations, const std::function<void()>& compute);

}  // namespace nestor
