// Winners: which candidates are worth a check in full, and what becomes of them.
#pragma once

#include "autotune/check/result_check.h"
#include "autotune/oracle/oracle.h"
#include "autotune/trial/trial.h"

namespace nestor {

/// A timed candidate that the fastest one leaves behind by more than the noise of measuring becomes `slow`: it is not served, and
/// not compared in full.
void note_loser(const TrialJob& job, TrialOutcome& outcome);

/// A candidate with an output of which nothing could be compared, neither at the tuned sizes nor in full, is infeasible.
void refuse_unchecked(const CheckReport& check, const AffordableSamples& samples, const Nest& definition, TrialOutcome& outcome);

/// Takes what a check in full found into the outcome: `wrong` with the reason, or its worst error; and what it cannot tell, or refuse_unchecked().
/// `samples`: what was compared at the tuned sizes. `seconds`: what the check took.
void take_check(const CheckReport& check, const AffordableSamples& samples, const Nest& definition, double seconds,
                TrialOutcome& outcome);

}  // namespace nestor
