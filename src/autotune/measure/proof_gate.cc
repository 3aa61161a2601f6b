// Verdicts of proofs as outcomes of trials.
#include "autotune/measure/proof_gate.h"

#include "autotune/measure/worker_process.h"
#include "codegen/proof/program_proof.h"

#include <fmt/format.h>

namespace nestor {

std::optional<TrialOutcome> outcome_without_proof(const TileProgram& program, const Schedule& schedule, double compile_ms) {
  const ProgramProof proof = prove_program(program, schedule);
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

}  // namespace nestor
