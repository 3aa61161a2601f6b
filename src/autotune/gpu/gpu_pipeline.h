// Trials on a GPU: all cores compile while the processes of the GPUs measure.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/workers/trial_pipeline.h"

#include <atomic>
#include <memory>

namespace nestor {

class GpuData;

/// A pipeline on options.target. Makes the inputs first, unless `data` points to those of an earlier pipeline with this definition, these
/// sizes and these options; then it points to this one's. Reference values are found meanwhile: no candidate runs before.
/// Throws UserError when the device is too old. next() throws what GpuData::complete() throws. No CUDA call is made in this process.
TrialPipeline make_gpu_pipeline(const TrialProblem& problem, const MeasureOptions& options,
                                const std::atomic<bool>* stop = nullptr, std::shared_ptr<GpuData>* data = nullptr);

}  // namespace nestor
