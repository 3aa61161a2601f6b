// GpuRunner: what the process of a device does for one candidate: load, check, time.
#pragma once

#include "autotune/check/result_check.h"
#include "autotune/gpu/gpu_memory.h"
#include "autotune/gpu/gpu_timer.h"
#include "autotune/timing/timing_race.h"
#include "autotune/workers/trial_stages.h"
#include "device/recipe_launcher.h"

#include <memory>
#include <optional>

namespace nestor {

class GpuRunner : public TrialDevice {
 public:
  /// Opens the device and uploads the inputs. Throws UserError and DeviceError.
  GpuRunner(std::shared_ptr<GpuProblem> problem, int ordinal);

  /// Correct first, then timed, as TimingRace has it.
  TrialOutcome run(const TrialJob& job, const CompiledTrial& compiled) override;
  bool usable() override;

 private:
  struct Loaded;
  /// Throws UserError for what this device cannot run, CudaError for what the driver refuses.
  Loaded load(const CompiledTrial& compiled);
  /// Makes the next launches use that memory.
  void bind(Loaded& loaded, GpuMemory& memory);
  /// One run against the oracle; what is wrong with it, "" for nothing.
  std::string check(Loaded& loaded, GpuMemory& memory, double& ms, TrialOutcome& outcome);
  TrialOutcome check_and_time(const TrialJob& job, Loaded& loaded);
  /// What may be served is compared in full at small sizes, and with the kernel before that may be served at those that it is tuned at; makes
  /// `outcome` wrong when it is.
  void check_in_full(const CompiledTrial& compiled, Loaded& loaded, TrialOutcome& outcome);
  std::string compare_with_peer(Loaded& loaded);
  /// One run at other sizes, on copies of `tensors` in memory of its own.
  CheckRun run_case(const Loaded& loaded, const Sizes& sizes, HostTensors& tensors);
  /// What the candidate showed of settling, if it was timed for so long.
  Settling time(const TrialJob& job, Loaded& loaded, double first_ms, TrialOutcome& outcome);

  std::shared_ptr<GpuProblem> problem_;
  CudaDevicePtr device_;
  ContextScope context_;
  CudaStream stream_;
  std::vector<std::unique_ptr<GpuMemory>> memories_;  ///< one a data set
  GpuTimer timer_;
  Settling fastest_;  ///< of the candidates timed so far
  ResultCheck check_;
  std::optional<PeerCheck> peers_;  ///< made when the reference values are there
  bool lost_ = false;
};

}  // namespace nestor
