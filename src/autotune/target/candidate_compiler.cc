// Replay, tile program, code, proof; and what each way to fail there is called.
#include "autotune/target/candidate_compiler.h"

#include "autotune/trial/code_certificate.h"
#include "autotune/trial/proof_gate.h"
#include "autotune/workers/worker_process.h"
#include "poly/isl/candidate_time.h"
#include "support/error.h"

#include <fmt/format.h>

namespace nestor {

std::string why_hopeless(const TrialJob& job, double least_ms) {
  if (job.best_ms <= 0 || job.must_finish || least_ms <= kHopeless * job.best_ms) return "";
  return fmt::format("few of its threads have work: it is guessed to take {:.4g} ms at least, the best takes {:.4g} ms", least_ms,
                     job.best_ms);
}

std::optional<TrialOutcome> CandidateCompiler::compile(const TrialJob& job, CompiledTrial& compiled) {
  const auto start = WorkerClock::now();
  std::optional<TrialOutcome> outcome;
  try {
    with_candidate_time([&] { outcome = attempt(job, compiled); });
  } catch (const UserError& error) {
    return failed_outcome(TrialStatus::infeasible, error.what(), milliseconds_since(start));
  }
  return outcome;
}

std::optional<TrialOutcome> CandidateCompiler::attempt(const TrialJob& job, CompiledTrial& compiled) {
  const auto start = WorkerClock::now();
  const auto ended = [&](TrialStatus status, const std::string& reason) {
    return failed_outcome(status, reason, milliseconds_since(start));
  };
  std::optional<Schedule> schedule;
  try {
    schedule = problem_->schedules->replay(job.steps);
  } catch (const UserError& error) {
    return ended(TrialStatus::illegal, error.what());
  }
  try {
    const TileProgram program = target_program(*schedule, problem_->options.target.is_gpu());
    std::string why = refusal(program);
    if (!why.empty()) return ended(TrialStatus::infeasible, why);
    if (!is_valid_for(program.valid, problem_->sizes, &why))
      return ended(TrialStatus::infeasible, "the kernel is not valid at these sizes: " + why);
    plan(program, compiled);
    if (const std::string hopeless = why_hopeless(job, compiled.least_ms); !hopeless.empty())
      return ended(TrialStatus::infeasible, hopeless);
    CodeCertificate certificate;
    certificate.kernels = generate(program, compiled);
    certificate.program = prove_program(program, *schedule);
    prove_operands(program, *schedule, certificate.kernels.zeroed, certificate.program);
    if (auto unproved = outcome_without_proof(certificate.program, milliseconds_since(start))) return unproved;
    if (auto unproved = outcome_without_plan_proof(certificate.kernels.unproved, milliseconds_since(start))) return unproved;
    compiled.certificate = code_certificate_to_json(certificate).dump();
  } catch (const UserError& error) {
    return ended(TrialStatus::infeasible, error.what());
  } catch (const InternalError& error) {
    return ended(TrialStatus::wrong, internal_reason(error));
  } catch (const Error& error) {
    return ended(TrialStatus::compile_error, error.what());
  }
  if (const std::string refused = finish(compiled, milliseconds_since(start)); !refused.empty())
    return ended(TrialStatus::compile_error, refused);
  compiled.compile_ms = milliseconds_since(start);
  return std::nullopt;
}

}  // namespace nestor
