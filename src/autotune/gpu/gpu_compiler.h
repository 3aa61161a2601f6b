// GpuCompiler: a candidate's steps to PTX, and to machine code when ptxas is there. Needs no GPU and no driver.
#pragma once

#include "autotune/gpu/gpu_problem.h"
#include "autotune/target/candidate_compiler.h"
#include "codegen/gpu/kernel_plans.h"

namespace nestor {

class GpuCompiler : public CandidateCompiler {
 public:
  explicit GpuCompiler(const std::shared_ptr<GpuProblem>& problem) : CandidateCompiler(problem), problem_(problem) {}

 private:
  void plan(const TileProgram& program, CompiledTrial& compiled) override;
  GpuCertificate generate(const TileProgram& program, CompiledTrial& compiled) override;
  std::string finish(CompiledTrial& compiled, double generated_ms) override;

  std::shared_ptr<GpuProblem> problem_;
  std::shared_ptr<const KernelPlans> plans_;  ///< of the candidate that is being compiled
};

/// Machine code of `kernel` from ptxas, with its report as JSON, where ptxas is there; nothing changes where it is not.
/// Returns why ptxas refuses the code, "" otherwise.
std::string assemble(CompiledTrial& compiled);

}  // namespace nestor
