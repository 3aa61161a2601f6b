// Trials on a GPU: all cores compile while the processes of the GPUs measure.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/workers/trial_pipeline.h"

#include <atomic>

namespace nestor {

/// A pipeline on options.target. Makes the inputs and evaluates the oracle first; throws UserError when that is too expensive or the
/// device is too old. No CUDA call is made in this process.
TrialPipeline make_gpu_pipeline(const TrialProblem& problem, const MeasureOptions& options,
                                const std::atomic<bool>* stop = nullptr);

}  // namespace nestor
