// GpuRunner: what the process of a device does for one candidate: load, check, time.
#pragma once

#include "autotune/measure/gpu_memory.h"
#include "autotune/measure/gpu_timer.h"
#include "autotune/measure/timing_race.h"
#include "autotune/measure/trial_pipeline.h"
#include "device/recipe_launcher.h"

#include <memory>

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
  /// What the candidate showed of settling, if it was timed for so long.
  Settling time(const TrialJob& job, Loaded& loaded, double first_ms, TrialOutcome& outcome);

  std::shared_ptr<GpuProblem> problem_;
  CudaDevicePtr device_;
  ContextScope context_;
  CudaStream stream_;
  std::vector<std::unique_ptr<GpuMemory>> memories_;  ///< one a data set
  GpuTimer timer_;
  Settling fastest_;  ///< of the candidates timed so far
  bool lost_ = false;
};

}  // namespace nestor
