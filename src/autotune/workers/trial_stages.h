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
  std::string periods = "{}";  ///< of the kernel's sizes (check_sizes.h)
};

/// Compiles candidates in a worker process. May throw: UserError is an illegal trial, anything else a compile error.
class TrialCompiler {
 public:
  virtual ~TrialCompiler() = default;
  /// Returns an outcome when the trial ends here; else fills `compiled`.
  virtual std::optional<TrialOutcome> compile(const TrialJob& job, CompiledTrial& compiled) = 0;
};

/// Checks and times compiled candidates in the one process that uses the device. May throw.
class TrialDevice {
 public:
  virtual ~TrialDevice() = default;
  virtual TrialOutcome run(const TrialJob& job, const CompiledTrial& compiled) = 0;
  /// False when the device's state is lost after a failure: the process is replaced.
  virtual bool usable() { return true; }
};

}  // namespace nestor
