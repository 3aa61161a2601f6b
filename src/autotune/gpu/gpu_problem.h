// GpuProblem: one problem's arguments and reference values on a GPU, made by the tuner and inherited by its processes.
#pragma once

#include "autotune/oracle/oracle.h"
#include "autotune/target/measured_problem.h"
#include "autotune/target/target.h"

#include <memory>
#include <vector>

namespace nestor {

struct GpuProblem : MeasuredProblem {
  /// Arguments filled with one set of random numbers, and what should come of them.
  struct Data {
    HostTensors tensors;  ///< inputs; outputs without bytes
    std::vector<OracleSample> samples;
  };
  GpuFacts gpu;                     ///< what is compiled for
  std::vector<Data> data{};         ///< the first one is timed as well; a second one where that is cheap
  std::int64_t argument_bytes = 0;  ///< of all arguments, each once
};

/// Random inputs and the oracle's values. Takes about a second for some hundred MiB. Throws UserError when the oracle is too
/// expensive, or for a device too old. Without the values where `stop` is set.
std::shared_ptr<GpuProblem> make_gpu_problem(const TrialProblem& tried, const MeasureOptions& options,
                                             const std::atomic<bool>* stop = nullptr);

}  // namespace nestor
