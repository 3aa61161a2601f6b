// GpuCompiler: a candidate's steps to PTX, and to machine code when ptxas is there. Needs no GPU and no driver.
#pragma once

#include "autotune/gpu/gpu_problem.h"
#include "autotune/target/candidate_compiler.h"

namespace nestor {

class GpuCompiler : public CandidateCompiler {
 public:
  explicit GpuCompiler(const std::shared_ptr<GpuProblem>& problem) : CandidateCompiler(problem), problem_(problem) {}

 private:
  GpuCertificate generate(const TileProgram& program, CompiledTrial& compiled) override;
  std::string finish(CompiledTrial& compiled, double generated_ms) override;

  std::shared_ptr<GpuProblem> problem_;
};

/// Machine code of `kernel` from ptxas, with its report as JSON, where ptxas is there; nothing changes where it is not.
/// Returns why ptxas refuses the code, "" otherwise.
std::string assemble(CompiledTrial& compiled);

}  // namespace nestor
