// Measuring schedules on a target, with or without a search around it.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/measurer.h"
#include "autotune/trial/trial_problem.h"
#include "db/database.h"
#include "poly/nest/nest.h"
#include "poly/schedule/schedule.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

class GpuData;

/// Measures with the processes of options.target. `data`: of an earlier measurer with the same definition, sizes and options, or null; gets this
/// one's where that may be used again.
std::unique_ptr<Measurer> make_measurer(const TrialProblem& problem, const MeasureOptions& options,
                                        const std::atomic<bool>* stop = nullptr, std::shared_ptr<GpuData>* data = nullptr);

/// Checks in full and times a kernel as it is stored, on a GPU assembled by the driver, at `sizes` of `nest` (as defined). `periods`: of
/// the program that its steps give (check_sizes.h).
TrialOutcome measure_stored_kernel(const Nest& nest, const Sizes& sizes, const KernelRecord& kernel, const std::string& periods,
                                   const MeasureOptions& options);

/// Who waits for a measurement.
struct MeasureWatch {
  std::function<void()> waiting = {};       ///< called up to 20 times a second, on the calling thread
  const std::atomic<bool>* stop = nullptr;  ///< set: what is under way is given up, and its record is none to keep
};

/// Compiles, checks and times one schedule in a worker process. `schedule.original_nest()` must be
/// `nest_for_tuning(nest, sizes, ...)`. Stores nothing.
TrialRecord measure_schedule(const Schedule& schedule, const Nest& nest, const Sizes& sizes, const MeasureOptions& options = {},
                             const MeasureWatch& watch = {});
/// The same for several, one after another, with inputs and processes made once.
std::vector<TrialRecord> measure_schedules(const std::vector<Schedule>& schedules, const Nest& nest, const Sizes& sizes,
                                           const MeasureOptions& options = {}, const MeasureWatch& watch = {});

}  // namespace nestor
