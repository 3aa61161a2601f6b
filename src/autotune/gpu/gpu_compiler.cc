// Replay, tile program, PTX, ptxas.
#include "autotune/gpu/gpu_compiler.h"

#include "autotune/check/check_sizes.h"
#include "autotune/trial/proof_gate.h"
#include "autotune/workers/worker_process.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "codegen/tile/tile_program.h"
#include "poly/isl/candidate_time.h"
#include "support/error.h"

#include <sstream>

namespace nestor {
namespace {

double milliseconds_since(WorkerClock::time_point start) {
  return std::chrono::duration<double, std::milli>(WorkerClock::now() - start).count();
}

/// Lines of an assembler's log that complain: errors, and warnings that a kernel will be slow (C75xx).
nlohmann::json complaints_in(const std::string& log) {
  nlohmann::json lines = nlohmann::json::array();
  std::istringstream text(log);
  for (std::string line; std::getline(text, line);) {
    if (line.find("error") != std::string::npos || line.find("warning") != std::string::npos ||
        line.find("(C7") != std::string::npos) {
      lines.push_back(line);
    }
  }
  return lines;
}

}  // namespace

std::string assemble(CompiledTrial& compiled) {
  const PtxasReport report = run_ptxas(compiled.kernel.code, compiled.kernel.architecture);
  if (!report.available) return "";
  const nlohmann::json complaints = complaints_in(report.log);
  if (!report.accepted) return "ptxas: " + (complaints.empty() ? report.log : complaints.front().get<std::string>());
  compiled.binary = report.cubin;
  const nlohmann::json json{{"registers", report.registers},
                            {"spill_bytes", report.spill_bytes},
                            {"stack_bytes", report.stack_bytes},
                            {"complaints", complaints}};
  compiled.report = nlohmann::json{{"ptxas", json}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return "";
}

std::optional<TrialOutcome> GpuCompiler::compile(const TrialJob& job, CompiledTrial& compiled) {
  const auto start = WorkerClock::now();
  std::optional<TrialOutcome> outcome;
  try {
    with_candidate_time([&] { outcome = generate(job, compiled); });
  } catch (const UserError& error) {
    return failed_outcome(TrialStatus::infeasible, error.what(), milliseconds_since(start));
  }
  return outcome;
}

std::optional<TrialOutcome> GpuCompiler::generate(const TrialJob& job, CompiledTrial& compiled) {
  const auto start = WorkerClock::now();
  const auto ended = [&](TrialStatus status, const std::string& reason) {
    return failed_outcome(status, reason, milliseconds_since(start));
  };
  std::optional<Schedule> schedule;
  try {
    schedule = problem_->schedules.replay(job.steps);
  } catch (const UserError& error) {
    return ended(TrialStatus::illegal, error.what());
  }
  try {
    const TileProgram program = build_tile_program(*schedule);
    std::string why;
    if (!is_valid_for(program.valid, problem_->sizes, &why)) {
      return ended(TrialStatus::infeasible, "the kernel is not valid at these sizes: " + why);
    }
    NvptxTarget target;
    target.sm = problem_->gpu.sm;
    target.shared_limit = problem_->gpu.shared_limit;
    target.keep_ir = false;
    compiled.periods = periods_to_text(size_periods(program));
    const CompiledNvptx code = compile_nvptx(program, target);
    const CompiledKernel& kernel = code.kernel;
    if (auto unproved = outcome_without_proof(program, *schedule, milliseconds_since(start))) return unproved;
    if (auto unproved = outcome_without_plan_proof(code.certificate.unproved, milliseconds_since(start))) return unproved;
    compiled.kernel = {kernel.architecture, kernel.code, recipe_to_json(kernel.recipe).dump(), ""};
  } catch (const UserError& error) {
    return ended(TrialStatus::infeasible, error.what());
  } catch (const InternalError& error) {
    return ended(TrialStatus::wrong, internal_reason(error));
  } catch (const Error& error) {
    return ended(TrialStatus::compile_error, error.what());
  }
  const double generated_ms = milliseconds_since(start);
  if (const std::string refused = assemble(compiled); !refused.empty()) {
    return ended(TrialStatus::compile_error, refused);
  }
  // Machine code for an older architecture does not run on the device, whose driver compiles the PTX instead.
  if (problem_->options.target.sm > 0) compiled.binary.clear();
  nlohmann::json report = compiled.report.empty() ? nlohmann::json::object() : nlohmann::json::parse(compiled.report);
  report["compile_ms"] = generated_ms;
  report["assemble_ms"] = milliseconds_since(start) - generated_ms;
  compiled.report = report.dump();
  compiled.compile_ms = milliseconds_since(start);
  return std::nullopt;
}

}  // namespace nestor
