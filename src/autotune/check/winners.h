// Winners: which candidates are worth a check in full, and what becomes of them.
#pragma once

#include "autotune/check/result_check.h"
#include "autotune/trial/trial.h"

namespace nestor {

/// A timed candidate that the fastest one leaves behind by more than the noise of measuring becomes `slow`: it is not served, and
/// not compared in full.
void note_loser(const TrialJob& job, TrialOutcome& outcome);

/// Takes what a check in full found into the outcome: `wrong` with the reason, or its worst error. `seconds`: what it took.
void note_check(const CheckReport& check, double seconds, TrialOutcome& outcome);

}  // namespace nestor
