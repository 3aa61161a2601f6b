// HostCompiler: a candidate's steps to an object for this machine.
#pragma once

#include "autotune/host/host_problem.h"
#include "autotune/target/candidate_compiler.h"

namespace nestor {

class HostCompiler : public CandidateCompiler {
 public:
  explicit HostCompiler(const std::shared_ptr<HostProblem>& problem) : CandidateCompiler(problem) {}

 private:
  std::string refusal(const TileProgram& program) const override;
  GpuCertificate generate(const TileProgram& program, CompiledTrial& compiled) override;
};

}  // namespace nestor
