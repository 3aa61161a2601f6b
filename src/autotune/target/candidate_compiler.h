// CandidateCompiler: from the steps of a candidate to proved code, on every target.
#pragma once

#include "autotune/target/measured_problem.h"
#include "autotune/workers/trial_stages.h"
#include "codegen/gpu/gpu_certificate.h"
#include "codegen/tile/tile_program.h"

#include <memory>
#include <optional>
#include <string>

namespace nestor {

/// Why a candidate that takes so long at least is not worth running beside the job's best, "" where it is.
std::string why_hopeless(const TrialJob& job, double least_ms);

class CandidateCompiler : public TrialCompiler {
 public:
  explicit CandidateCompiler(std::shared_ptr<MeasuredProblem> problem) : problem_(std::move(problem)) {}
  /// Replays, makes code of the tile program and proves it. Sets `certificate` and `compile_ms`.
  std::optional<TrialOutcome> compile(const TrialJob& job, CompiledTrial& compiled) final;

 protected:
  /// Why no program like this one may run on the target, "" for nothing.
  virtual std::string refusal(const TileProgram&) const { return ""; }
  /// Plans the program's kernels and sets `least_ms` where something is known of it: before code is made, which takes most of the time.
  /// Throws UserError where the target refuses the program.
  virtual void plan(const TileProgram&, CompiledTrial&) {}
  /// Fills `kernel` and `periods`, after plan(). Returns what is proved of the plans. Throws UserError where the target refuses the program.
  virtual GpuCertificate generate(const TileProgram& program, CompiledTrial& compiled) = 0;
  /// What follows the proof: an assembler. Returns why it refuses the code, "" for nothing. `generated_ms`: taken so far.
  virtual std::string finish(CompiledTrial&, double generated_ms) {
    static_cast<void>(generated_ms);
    return "";
  }

 private:
  std::optional<TrialOutcome> attempt(const TrialJob& job, CompiledTrial& compiled);

  std::shared_ptr<MeasuredProblem> problem_;
};

}  // namespace nestor
