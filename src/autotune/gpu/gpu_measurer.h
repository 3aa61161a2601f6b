// GpuMeasurer: compiles candidates on all cores while the processes of the GPUs measure.
#pragma once

#include "autotune/trial/measurer.h"
#include "autotune/tuner.h"

#include <atomic>
#include <memory>

namespace nestor {

/// A measurer for `nest` (as nest_for_tuning gives it) at `sizes` on options.target. Makes the inputs and evaluates the oracle
/// first; throws UserError when that is too expensive or the device is too old. No CUDA call is made in this process.
std::unique_ptr<Measurer> make_gpu_measurer(const Nest& original, const Nest& nest, const Sizes& sizes,
                                            const MeasureOptions& options, const std::atomic<bool>* stop = nullptr);

/// Checks in full and times a kernel as it is stored, assembled by the driver, at `sizes` of `nest` (as defined). `periods`: of the program
/// that its steps give (check_sizes.h).
TrialOutcome measure_stored_gpu_kernel(const Nest& nest, const Sizes& sizes, const KernelRecord& kernel,
                                       const std::string& periods, const MeasureOptions& options);

/// Versions that a GPU measurement depends on.
std::string gpu_toolchain();

}  // namespace nestor
