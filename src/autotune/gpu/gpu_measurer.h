// GpuMeasurer: compiles candidates on all cores while the processes of the GPUs measure.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/measurer.h"
#include "autotune/trial/trial_problem.h"
#include "poly/nest/nest.h"

#include <atomic>
#include <memory>
#include <string>

namespace nestor {

/// A measurer on options.target. Makes the inputs and evaluates the oracle
/// first; throws UserError when that is too expensive or the device is too old. No CUDA call is made in this process.
std::unique_ptr<Measurer> make_gpu_measurer(const TrialProblem& problem, const MeasureOptions& options,
                                            const std::atomic<bool>* stop = nullptr);

/// Checks in full and times a kernel as it is stored, assembled by the driver, at `sizes` of `nest` (as defined). `periods`: of the program
/// that its steps give (check_sizes.h).
TrialOutcome measure_stored_gpu_kernel(const Nest& nest, const Sizes& sizes, const KernelRecord& kernel,
                                       const std::string& periods, const MeasureOptions& options);

}  // namespace nestor
