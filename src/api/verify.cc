// Re-checks trials: replay, certificate, a fresh compile, and the stored bytes against the oracle.
#include "api/verify.h"

#include "autotune/check/check_sizes.h"
#include "autotune/measure_schedules.h"
#include "autotune/space/space_limits.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "codegen/host/host_backend.h"
#include "poly/nest/nest_json.h"
#include "support/architecture.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/system/json_text.h"

#include <algorithm>

namespace nestor {
namespace {

constexpr const char* kStoredCheck = "stored kernel against the oracle";

/// "worst error 0.4 of what is allowed; in full: 4,400 elements at ..."
std::string compared_text(double max_error, const std::string& report) {
  const nlohmann::json json = json_or_discarded(report.empty() ? "{}" : report);
  std::string text = fmt::format("worst error {:.2g} of what is allowed", max_error);
  if (json.is_object() && json.contains("check")) text += "; in full: " + json.at("check").get<std::string>();
  return text;
}

/// What this machine did to the run is no finding about the trial.
void require_verdict(TrialStatus status, const std::string& reason) {
  if (ended_from_outside(status, reason)) throw DeviceError(reason);
}

Finding check_oracle(const std::string& check, const TrialRecord& record) {
  require_verdict(record.status, record.reason);
  if (record.status != TrialStatus::ok) return {check, false, fmt::format("{}: {}", to_string(record.status), record.reason)};
  return {check, true, fmt::format("{}; median {:.4g} ms", compared_text(record.max_error, record.report), record.median_ms)};
}

Finding check_outcome(const std::string& check, const TrialOutcome& outcome) {
  require_verdict(outcome.status, outcome.reason);
  if (outcome.status != TrialStatus::ok) return {check, false, fmt::format("{}: {}", to_string(outcome.status), outcome.reason)};
  return {check, true, compared_text(outcome.max_error, outcome.report)};
}

/// Kernels for another device stay unrun; their recompiled form was checked already.
Finding check_stored_kernel(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const KernelRecord& stored,
                            const MeasureOptions& options) {
  const DeviceIdentity device = device_identity(options.target, options.threads);
  std::string why;
  if (!can_run(stored.architecture, device.kind, device.arch, &why)) return {kStoredCheck, true, "not run: " + why};
  const SizePeriods periods = size_periods(build_tile_program(schedule));
  return check_outcome(kStoredCheck, measure_stored_kernel(nest, sizes, stored, periods_to_text(periods), options));
}

/// What is left to check of a GPU's trial without that GPU: that the schedule still gives code, which ptxas, if it is here,
/// accepts.
Finding check_compiles(const Schedule& schedule, const DeviceIdentity& device) {
  const std::string check = fmt::format("compiled now for {}", device.arch);
  const CompiledKernel kernel = compile_nvptx(build_tile_program(schedule), {.sm = sm_of(device), .keep_ir = false}).kernel;
  const PtxasReport report = run_ptxas(kernel.code, kernel.architecture);
  if (report.available && !report.accepted) return {check, false, "ptxas refuses it: " + report.log};
  return {check, true,
          fmt::format("not run: no such device here; {} bytes of PTX{}", kernel.code.size(),
                      report.available ? fmt::format(", {} registers", report.registers) : "")};
}

Finding check_nest(const Nest& nest, const std::string& expected) {
  const std::string found = digest(nest);
  if (found == expected) return {"nest digest", true, found};
  return {"nest digest", false, fmt::format("the stored nest has {}, the trial names {}", found, expected)};
}

/// The part that needs neither record nor a device that is here. Adds to `result`.
/// False when the program is refuted: then nothing more is to be done with it.
bool prove(const Schedule& schedule, const DeviceIdentity& device, Verification& result) {
  const TileProgram program = build_tile_program(schedule);
  result.certificate = certify(schedule, program, {.sm = sm_of(device)});
  result.findings.push_back({"steps", true, fmt::format("{} steps replayed, each proved", schedule.steps().size())});
  result.findings.push_back(
      {"dependences", true, fmt::format("{} checked against the final order", result.certificate.dependences.size())});
  const ProgramProof& proof = result.certificate.program;
  const bool proved = proof.verdict == ProofVerdict::proved;
  result.findings.push_back({"tile program", proved,
                             proved ? fmt::format("{} facts proved for all valid sizes", proof.facts.size())
                                    : fmt::format("{}: {}", to_string(proof.verdict), proof.reason)});
  if (proof.verdict == ProofVerdict::refuted) return false;
  const std::size_t facts = result.certificate.kernels.stages.size();
  if (facts > 0)
    result.findings.push_back({"slots", true, fmt::format("{} facts of kernels on tensor cores proved for all sizes", facts)});
  const GpuCertificate& kernels = result.certificate.kernels;
  if (kernels.blocks.empty()) return true;
  const bool whole = kernels.unproved.empty();
  result.findings.push_back({"blocks", whole,
                             whole ? fmt::format("{} facts of threads and blocks proved for all sizes", kernels.blocks.size())
                                   : "unproved: " + kernels.unproved.front()});
  return true;
}

constexpr const char* kCompiledCheck = "compiled now, against the oracle";

Finding check_compiled_now(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options) {
  return check_oracle(kCompiledCheck, measure_schedule(schedule, nest, sizes, options));
}

/// The target that a trial of `device` is run on again; nothing when it is not here.
std::optional<Target> target_for(const DeviceIdentity& device, const Target& asked) {
  if (device.kind == "host") return Target{};
  Target found = asked.is_gpu() ? asked : target_from("auto");
  if (!found.is_gpu()) return std::nullopt;
  // Kernels for an older device are compiled for it again.
  if (found.sm == 0) found.sm = std::min(sm_of(device), gpu_facts(found).sm);
  return found;
}

Nest as_defined(const Database::Origin& origin) { return nest_from_json(json_from_text(origin.nest_json, "the stored nest")); }

}  // namespace

bool Verification::passed() const {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.passed; });
}

Verification verify_schedule(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options) {
  Verification result;
  if (!prove(schedule, device_identity(options.target, options.threads), result)) return result;
  result.findings.push_back(check_compiled_now(nest, sizes, schedule, options));
  return result;
}

Verification verify_trial(const Database& database, std::int64_t trial_id, const MeasureOptions& options) {
  const std::optional<Database::Origin> origin = database.origin(trial_id);
  if (!origin) user_error("the database has no trial {}", trial_id);
  Verification result;
  std::optional<TrialRecord> trial;
  try {
    trial = database.trial(trial_id);
  } catch (const UserError& error) {
    result.findings.push_back({"kernel hash", false, error.what()});
    return result;
  }
  if (trial->kernel) result.findings.push_back({"kernel hash", true, trial->kernel->hash});
  if (trial->status != TrialStatus::ok && trial->status != TrialStatus::slow) {
    result.findings.push_back(
        {"as it was measured", true,
         fmt::format("{} by code revision {}: {}", to_string(trial->status), trial->revision, trial->reason)});
  }
  const Nest nest = as_defined(*origin);
  result.findings.push_back(check_nest(nest, origin->problem.nest_digest));
  try {
    const Sizes& sizes = origin->problem.sizes;
    const Schedule schedule = replay_trial_steps(nest, sizes, json_from_text(trial->steps, "the stored schedule"));
    if (!prove(schedule, origin->device, result)) return result;
    const std::optional<Target> target = target_for(origin->device, options.target);
    if (!target) {
      result.findings.push_back(check_compiles(schedule, origin->device));
      return result;
    }
    MeasureOptions here = options;
    here.target = *target;
    result.measured = measure_schedule(schedule, nest, sizes, here);
    result.device = device_identity(here.target, here.threads);
    result.findings.push_back(check_oracle(kCompiledCheck, *result.measured));
    if (trial->kernel && !trial->trusted) {
      result.findings.push_back({kStoredCheck, true, "not run: it is signed by nobody who is trusted (nestor db trust)"});
      return result;
    }
    if (trial->kernel) result.findings.push_back(check_stored_kernel(nest, sizes, schedule, *trial->kernel, here));
  } catch (const LackOfResources&) {
    throw;
  } catch (const UserError& error) {
    result.findings.push_back({"steps", false, error.what()});
  }
  return result;
}

}  // namespace nestor
