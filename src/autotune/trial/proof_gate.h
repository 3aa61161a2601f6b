// The gate before a candidate is run: its tile program must be proved, and how threads share it.
#pragma once

#include "autotune/trial/trial.h"
#include "codegen/proof/program_proof.h"

#include <optional>
#include <string>
#include <vector>

namespace nestor {

/// What becomes of a candidate whose program has this proof: wrong (a bug of Nestor, with the counterexample) or unproved (with what stayed
/// open). Nothing when it is proved. `compile_ms`: what the candidate has taken so far.
std::optional<TrialOutcome> outcome_without_proof(const ProgramProof& proof, double compile_ms);

/// The same of a GPU candidate's plans, which share the program's ops among threads: `open` is GpuCertificate::unproved. A plan that is shown
/// to be wrong has no code; compile_nvptx throws an InternalError.
std::optional<TrialOutcome> outcome_without_plan_proof(const std::vector<std::string>& open, double compile_ms);

}  // namespace nestor
