// HostRunner: what a worker does for one candidate: replay, compile, load, check, time.
#pragma once

#include "autotune/check/peer_check.h"
#include "autotune/check/result_check.h"
#include "autotune/host/guarded_buffer.h"
#include "autotune/target/measure_options.h"
#include "autotune/timing/cold_cache.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_problem.h"
#include "autotune/workers/worker_pool.h"
#include "codegen/host/host_backend.h"

#include <memory>
#include <vector>

namespace nestor {

/// One problem's arguments and reference values; computed by the tuner, inherited by its workers.
struct HostProblem {
  Nest definition;
  BaseSchedules schedules;
  Sizes sizes;
  MeasureOptions options;
  HostTensors outputs;                 ///< shapes and poison; inputs are in `buffers` only
  std::vector<std::string> names;      ///< of `buffers`, in the nest's order
  std::vector<GuardedBuffer> buffers;  ///< inputs read-only
  std::vector<std::vector<std::int64_t>> strides;
  std::vector<bool> is_output;
  std::vector<bool> covered;  ///< an output every element of which is written
  std::vector<OracleSample> samples;
};

/// Random arguments in guarded memory and the oracle's values. Throws UserError when the oracle is too expensive.
std::shared_ptr<HostProblem> make_host_problem(const TrialProblem& tried, const MeasureOptions& options);

class HostRunner : public TrialRunner {
 public:
  explicit HostRunner(std::shared_ptr<HostProblem> problem);
  std::optional<TrialOutcome> prepare(const TrialJob& job) override;
  TrialOutcome run(const TrialJob& job) override;

 private:
  /// Replay to a loaded kernel.
  std::optional<TrialOutcome> generate(const TrialJob& job);

  double run_once();
  /// Checks the outputs of the last run; the reason when they are wrong.
  std::string check(TrialOutcome& outcome);
  /// What the last run did besides its results, which are taken to problem_->outputs.
  std::string fetch_outputs();
  void poison_outputs();
  void time(const TrialJob& job, double first_ms, TrialOutcome& outcome);
  /// What may be served is compared in full at small sizes, and with the kernel before that may be served at those that it is tuned at; makes
  /// `outcome` wrong when it is.
  void check_in_full(TrialOutcome& outcome);

  std::shared_ptr<HostProblem> problem_;
  ResultCheck check_;
  PeerCheck peers_;
  SizePeriods periods_;
  std::uint32_t generation_ = 0;  ///< of the poison in the outputs
  std::unique_ptr<ColdCache> cold_;
  std::optional<LoadedHostKernel> kernel_;
  CompiledKernel compiled_;
  double compile_ms_ = 0;
};

}  // namespace nestor
