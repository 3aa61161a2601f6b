// WorkerPool: processes that compile together and run one at a time, on the machine that measures.
#pragma once

#include "autotune/trial/trial.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace nestor {

/// What a worker does for one candidate, apart from processes and pipes. Tests replace it to crash or hang at will.
/// `prepare` compiles, `run` checks and times; both may throw. A worker process calls them in turn on one object.
class TrialRunner {
 public:
  virtual ~TrialRunner() = default;
  /// Returns an outcome when the trial ends here (illegal, compile error), nothing when `run` may follow.
  virtual std::optional<TrialOutcome> prepare(const TrialJob& job) = 0;
  virtual TrialOutcome run(const TrialJob& job) = 0;
};

/// Limits of the worker processes.
struct WorkerLimits {
  int workers = 2;
  double prepare_timeout_s = 30;
  double run_timeout_s = 30;
  std::int64_t memory_limit = 0;  ///< bytes of address space a worker may add to what it inherits; 0: no limit
};

/// A pool of worker processes, forked from the calling process; each lives for many trials and is replaced when it dies.
/// Jobs of one batch are prepared in parallel, then run one at a time while nothing else is running.
class WorkerPool {
 public:
  /// `make_runner` is called once in each new worker process.
  WorkerPool(WorkerLimits limits, std::function<std::unique_ptr<TrialRunner>()> make_runner,
             const std::atomic<bool>* stop = nullptr);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  /// Jobs that a set stop flag cut short come back as stopped.
  std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nestor
