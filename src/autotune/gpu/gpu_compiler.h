// GpuCompiler: a candidate's steps to PTX, and to machine code when ptxas is there. Needs no GPU and no driver.
#pragma once

#include "autotune/gpu/gpu_problem.h"
#include "autotune/workers/trial_stages.h"

namespace nestor {

class GpuCompiler : public TrialCompiler {
 public:
  explicit GpuCompiler(std::shared_ptr<GpuProblem> problem) : problem_(std::move(problem)) {}
  std::optional<TrialOutcome> compile(const TrialJob& job, CompiledTrial& compiled) override;

 private:
  /// Replay to machine code.
  std::optional<TrialOutcome> generate(const TrialJob& job, CompiledTrial& compiled);

  std::shared_ptr<GpuProblem> problem_;
};

/// Machine code of `kernel` from ptxas, with its report as JSON, where ptxas is there; nothing changes where it is not.
/// Returns why ptxas refuses the code, "" otherwise.
std::string assemble(CompiledTrial& compiled);

}  // namespace nestor
