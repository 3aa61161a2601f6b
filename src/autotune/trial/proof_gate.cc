// Verdicts of proofs as outcomes of trials.
#include "autotune/trial/proof_gate.h"

#include <fmt/ranges.h>

namespace nestor {

std::optional<TrialOutcome> outcome_without_proof(const ProgramProof& proof, double compile_ms) {
  switch (proof.verdict) {
    case ProofVerdict::proved:
      return std::nullopt;
    case ProofVerdict::refuted:
      return failed_outcome(TrialStatus::wrong, fmt::format("the tile program is refuted: {}", proof.reason), compile_ms);
    case ProofVerdict::unproved:
      break;
  }
  return failed_outcome(TrialStatus::unproved, fmt::format("the tile program is not proved: {}", proof.reason), compile_ms);
}

std::optional<TrialOutcome> outcome_without_plan_proof(const std::vector<std::string>& open, double compile_ms) {
  if (open.empty()) return std::nullopt;
  return failed_outcome(TrialStatus::unproved,
                        fmt::format("how threads share the tile program is not proved: {}", fmt::join(open, "; ")), compile_ms);
}

}  // namespace nestor
