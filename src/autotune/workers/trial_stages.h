// Stages of a trial: compiling a candidate, which any process can do, and measuring it, in the one that uses the device.
#pragma once

#include "autotune/trial/trial.h"

#include <optional>
#include <string>

namespace nestor {

/// What compiling a candidate gives, and measuring it takes.
struct CompiledTrial {
  KernelRecord kernel;
  std::string binary;  ///< machine code of `kernel`, when an assembler was at hand
  std::string report;  ///< JSON
  double compile_ms = 0;
  std::string periods = "{}";    ///< of the kernel's sizes (check_sizes.h)
  std::string certificate = "";  ///< JSON: what was proved of `kernel` (code_certificate.h)
  double least_ms = 0;           ///< that its kernels take, by a guess from below; 0: nothing is known
};

/// What a worker process does for each candidate that it is given. May throw: UserError is an illegal trial, anything else a compile error.
class TrialStage {
 public:
  virtual ~TrialStage() = default;
  /// Returns an outcome when the trial ends here; else leaves in `compiled` what the next stage takes.
  virtual std::optional<TrialOutcome> work(const TrialJob& job, CompiledTrial& compiled) = 0;
  /// False when the process must be replaced after a failure.
  virtual bool usable() { return true; }
};

/// Compiles candidates.
class TrialCompiler : public TrialStage {
 public:
  /// Returns an outcome when the trial ends here; else fills `compiled`.
  virtual std::optional<TrialOutcome> compile(const TrialJob& job, CompiledTrial& compiled) = 0;
  std::optional<TrialOutcome> work(const TrialJob& job, CompiledTrial& compiled) final { return compile(job, compiled); }
};

/// Checks and times compiled candidates, alone with the device.
class TrialDevice : public TrialStage {
 public:
  virtual TrialOutcome run(const TrialJob& job, const CompiledTrial& compiled) = 0;
  std::optional<TrialOutcome> work(const TrialJob& job, CompiledTrial& compiled) final { return run(job, compiled); }
};

}  // namespace nestor
