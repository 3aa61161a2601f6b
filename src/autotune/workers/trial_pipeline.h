// TrialPipeline: many processes compile while one process a device measures.
#pragma once

#include "autotune/trial/trial.h"
#include "autotune/workers/trial_stages.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace nestor {

struct PipelineLimits {
  int compilers = 2;
  int devices = 1;
  double compile_timeout_s = 30;
  double run_timeout_s = 30;
  double start_timeout_s = 60;        ///< until a process is ready
  std::int64_t memory_limit = 0;      ///< bytes of address space a compiling process may add to what it inherits; 0: no limit
  std::int64_t run_memory_limit = 0;  ///< the same of a device's process
  /// Nothing compiles while a candidate runs: the device is the processors that compile. What waits is compiled before anything runs.
  bool alternating = false;
  std::function<bool()> may_run{};  ///< nothing runs before it says so; what it throws, every function throws that hands jobs on
};

/// Processes are forked from the calling one, which must not have threads; those of the devices at once, so that they start
/// up while the caller still prepares. Each lives for many trials and is replaced when it dies; what it was working on is an
/// outcome. One that was killed from outside is replaced, and its job tried again, three times at most; then the outcome says so and has
/// no verdict (TrialOutcome::outside). When nothing but such deaths happens, next() throws DeviceError. Not thread safe.
class TrialPipeline {
 public:
  /// Each function is called in the new processes; `make_device` with the number of the device, before the first job.
  TrialPipeline(PipelineLimits limits, std::function<std::unique_ptr<TrialCompiler>()> make_compiler,
                std::function<std::unique_ptr<TrialDevice>(int device)> make_device, const std::atomic<bool>* stop = nullptr);
  ~TrialPipeline();
  TrialPipeline(TrialPipeline&&) noexcept;

  /// Jobs under way at once that keep every process busy.
  int depth() const;
  /// True when new jobs are best handed over as soon as others are settled; else when all are.
  bool streaming() const;
  /// Hands a job over. `first`: before all that wait.
  void submit(std::int64_t ticket, const TrialJob& job, bool first = false);
  /// A job that is compiled already.
  void submit(std::int64_t ticket, const TrialJob& job, CompiledTrial compiled);
  /// Waits for a job to be settled; in the order in which they are. Ones that a set stop flag cut short are stopped. An ok outcome has the kernel. Throws UserError or DeviceError when a process cannot
  /// start, InternalError when nothing is under way.
  SettledTrial next();
  /// Would next() return at once? Hears what processes have said, and gives them what to do, without waiting.
  bool has_settled();
  /// The same as next() for one of them; others that are settled meanwhile wait for next().
  TrialOutcome wait_for(std::int64_t ticket);
  /// `told` is called every now and then, up to 20 times a second, while next() and wait_for() wait.
  void while_waiting(std::function<void()> told);
  /// Gives up what no device has begun with; next() tells of it as stopped.
  void abandon();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nestor
