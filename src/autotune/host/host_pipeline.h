// Trials on this machine: processes compile together, then candidates run one at a time.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/workers/trial_pipeline.h"

#include <atomic>

namespace nestor {

/// Makes the arguments and evaluates the oracle first; throws UserError when that is too expensive.
TrialPipeline make_host_pipeline(const TrialProblem& problem, const MeasureOptions& options,
                                 const std::atomic<bool>* stop = nullptr);

}  // namespace nestor
