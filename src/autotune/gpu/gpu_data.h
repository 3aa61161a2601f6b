// GpuData: random inputs of a problem, and what should come of them, which a process of its own finds out meanwhile.
#pragma once

#include "autotune/oracle/oracle.h"
#include "autotune/target/measure_options.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/workers/worker_process.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace nestor {

/// One set of data, two where that is cheap; the first one is timed as well. Processes that are forked meanwhile inherit it. Not copyable.
class GpuData {
 public:
  /// Makes the inputs, some hundred MiB a second, and starts the process. No other thread may run meanwhile.
  GpuData(const TrialProblem& tried, const MeasureOptions& options);
  ~GpuData();
  GpuData(const GpuData&) = delete;
  GpuData& operator=(const GpuData&) = delete;

  /// Number of sets for arguments of so many bytes.
  static int sets_for(std::int64_t argument_bytes);

  std::size_t sets() const { return inputs_.size(); }
  /// Inputs; outputs without bytes.
  const HostTensors& tensors(std::size_t set) const { return inputs_.at(set); }
  /// Bytes of all arguments, each once.
  std::int64_t argument_bytes() const { return argument_bytes_; }
  /// Are all reference values there? Does not wait. To be asked where it was made. Throws what reference_samples() throws, and
  /// LackOfResources where something outside ended the process.
  bool complete();
  /// Reference values of a set. complete() must have been true, here or where this process was forked.
  const AffordableSamples& samples(std::size_t set) const;

 private:
  std::vector<HostTensors> inputs_;
  std::int64_t argument_bytes_ = 0;
  WorkerProcess process_;
  int file_ = -1;  ///< in memory, where the process writes
  bool complete_ = false;
  mutable std::vector<AffordableSamples> samples_;  ///< read when first asked for
};

}  // namespace nestor
