// The time that isl may have for one candidate, from its steps to its code and their proofs.
#pragma once

#include <functional>

namespace nestor {

/// Processor seconds, code generation around isl's work included.
inline constexpr double kCandidateSeconds = 8;

/// Runs `compute`, in which every limit of isl's time ends here at the latest. Throws UserError once the time is over.
void with_candidate_time(const std::function<void()>& compute, double seconds = kCandidateSeconds);

}  // namespace nestor
