// HostMeasurer: measures candidates on this machine, each in a worker process that may crash or hang without harm.
#pragma once

#include "autotune/target/measure_options.h"
#include "autotune/trial/measurer.h"
#include "autotune/trial/trial_problem.h"

#include <atomic>
#include <memory>

namespace nestor {

/// Seconds that checking and timing one candidate may take on the host.
double host_run_timeout(const MeasureOptions& options);

/// Evaluates the oracle first; throws UserError when that is too expensive.
std::unique_ptr<Measurer> make_host_measurer(const TrialProblem& problem, const MeasureOptions& options,
                                             const std::atomic<bool>* stop = nullptr);

}  // namespace nestor
