// HostRunner: what the process that measures does for one candidate: load, check, time.
#pragma once

#include "autotune/check/peer_check.h"
#include "autotune/check/result_check.h"
#include "autotune/host/host_problem.h"
#include "autotune/timing/cold_cache.h"
#include "autotune/workers/trial_stages.h"
#include "codegen/host/host_backend.h"

#include <memory>
#include <optional>
#include <string>

namespace nestor {

class HostRunner : public TrialDevice {
 public:
  explicit HostRunner(std::shared_ptr<HostProblem> problem);
  /// Loads, checks and times.
  TrialOutcome run(const TrialJob& job, const CompiledTrial& compiled) override;

 private:
  double run_once();
  /// Checks the outputs of the last run; the reason when they are wrong.
  std::string check(TrialOutcome& outcome);
  /// What the last run did besides its results, which are taken to problem_->outputs.
  std::string fetch_outputs();
  void poison_outputs();
  void time(const TrialJob& job, double first_ms, TrialOutcome& outcome);
  /// What may be served is compared in full at small sizes, and with the kernel before that may be served at those that it is tuned at; makes
  /// `outcome` wrong when it is.
  void check_in_full(const CompiledTrial& compiled, TrialOutcome& outcome);

  std::shared_ptr<HostProblem> problem_;
  ResultCheck check_;
  PeerCheck peers_;
  std::uint32_t generation_ = 0;  ///< of the poison in the outputs
  std::unique_ptr<ColdCache> cold_;
  std::optional<LoadedHostKernel> kernel_;
  LaunchRecipe recipe_;  ///< of `kernel_`
};

}  // namespace nestor
