// Re-checks trials: replay, certificate, a fresh compile, and the stored bytes against the oracle.
#include "api/verify.h"

#include "autotune/check/check_sizes.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/ptx/ptxas.h"
#include "poly/nest/nest_json.h"
#include "support/architecture.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/system/json_text.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nestor {
namespace {

constexpr std::array<std::string_view, 12> kCheckNames{"kernel hash",  "as it was measured",
                                                       "nest digest",  "steps",
                                                       "dependences",  "tile program",
                                                       "stages",       "blocks",
                                                       "certificate",  "compiled now, against the oracle",
                                                       "compiled now", "stored kernel against the oracle"};

Finding passed(Check check, std::string detail) { return {check, Finding::Result::passed, std::move(detail)}; }
Finding failed(Check check, TrialStatus status, std::string detail) {
  return {check, Finding::Result::failed, std::move(detail), status};
}
Finding not_run(Check check, const std::string& why) { return {check, Finding::Result::not_run, "not run: " + why}; }

/// "worst error 0.4 of what is allowed; in full: 4,400 elements at ..."
std::string compared_text(double max_error, const std::string& report) {
  const nlohmann::json json = json_or_discarded(report.empty() ? "{}" : report);
  std::string text = fmt::format("worst error {:.2g} of what is allowed", max_error);
  if (json.is_object() && json.contains("check")) text += "; in full: " + json.at("check").get<std::string>();
  return text;
}

/// That a stored trial gets whose kernel ended so when it was run again.
TrialStatus status_after(TrialStatus run) {
  switch (run) {
    case TrialStatus::crash:
    case TrialStatus::timeout:
    case TrialStatus::compile_error:
    case TrialStatus::infeasible:
    case TrialStatus::unproved:
      return run;
    default:
      return TrialStatus::wrong;
  }
}

/// A run that did not give the right results. What this machine did to it is no finding about the trial: DeviceError.
Finding failed_run(Check check, TrialStatus status, const std::string& reason) {
  if (ended_from_outside(status, reason)) throw DeviceError(reason);
  return failed(check, status_after(status), fmt::format("{}: {}", to_string(status), reason));
}

Finding check_compiled_now(const TrialRecord& record) {
  if (record.status != TrialStatus::ok) return failed_run(Check::compiled_now, record.status, record.reason);
  return passed(Check::compiled_now,
                fmt::format("{}; median {:.4g} ms", compared_text(record.max_error, record.report), record.median_ms));
}

/// Kernels for another device stay unrun; their recompiled form was checked already.
Finding check_stored_kernel(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const KernelRecord& stored,
                            const MeasureOptions& options) {
  const DeviceIdentity device = device_identity(options.target, options.threads);
  std::string why;
  if (!can_run(stored.architecture, device.kind, device.arch, &why)) return not_run(Check::stored_kernel, why);
  const SizePeriods periods = size_periods(target_program(schedule, options.target.is_gpu()));
  const TrialOutcome outcome = measure_stored_kernel(nest, sizes, stored, periods_to_text(periods), options);
  if (outcome.status != TrialStatus::ok) return failed_run(Check::stored_kernel, outcome.status, outcome.reason);
  return passed(Check::stored_kernel, compared_text(outcome.max_error, outcome.report));
}

/// What is left to check of a GPU's kernel without that GPU: whether ptxas, if it is here, accepts it.
Finding check_assembles(const CompiledKernel& kernel, const DeviceIdentity& device) {
  const PtxasReport report = run_ptxas(kernel.code, kernel.architecture);
  if (report.available && !report.accepted)
    return failed(Check::assembled_now, TrialStatus::compile_error, "ptxas refuses it: " + report.log);
  return not_run(Check::assembled_now,
                 fmt::format("no such device here; {} bytes of PTX for {}{}", kernel.code.size(), device.arch,
                             report.available ? fmt::format(", {} registers", report.registers) : ""));
}

Finding check_nest(const Nest& nest, const std::string& expected) {
  const std::string found = digest(nest);
  if (found == expected) return passed(Check::nest_digest, found);
  return failed(Check::nest_digest, TrialStatus::illegal,
                fmt::format("the stored nest has {}, the trial names {}", found, expected));
}

Finding check_program(const ProgramProof& proof) {
  if (proof.verdict == ProofVerdict::proved)
    return passed(Check::tile_program, fmt::format("{} facts proved for all valid sizes", proof.facts.size()));
  return failed(Check::tile_program, proof.verdict == ProofVerdict::unproved ? TrialStatus::unproved : TrialStatus::wrong,
                fmt::format("{}: {}", to_string(proof.verdict), proof.reason));
}

Finding check_blocks(const GpuCertificate& kernels) {
  if (kernels.unproved.empty())
    return passed(Check::blocks, fmt::format("{} facts of threads and blocks proved for all sizes", kernels.blocks.size()));
  return failed(Check::blocks, TrialStatus::unproved, "unproved: " + kernels.unproved.front());
}

/// Adds what the certificate says to the findings. False when the program is refuted: then nothing more is to be done with it.
bool add_proofs(const Schedule& schedule, Verification& result) {
  const CodeCertificate& code = result.certificate.code;
  std::vector<Finding>& findings = result.findings;
  findings.push_back(passed(Check::steps, fmt::format("{} steps replayed, each proved", schedule.steps().size())));
  findings.push_back(
      passed(Check::dependences, fmt::format("{} checked against the final order", result.certificate.dependences.size())));
  findings.push_back(check_program(code.program));
  if (code.program.verdict == ProofVerdict::refuted) return false;
  const std::size_t facts = code.kernels.stages.size();
  if (facts > 0)
    findings.push_back(passed(Check::stages, fmt::format("{} facts of kernels on tensor cores proved for all sizes", facts)));
  if (!code.kernels.blocks.empty()) findings.push_back(check_blocks(code.kernels));
  return true;
}

/// The target that a trial of `device` is run on again; nothing when it is not here.
std::optional<Target> target_for(const DeviceIdentity& device, const Target& asked) {
  if (device.kind == "host") return Target{};
  Target found = asked.is_gpu() ? asked : target_from("auto");
  if (!found.is_gpu()) return std::nullopt;
  // Kernels for an older device are compiled for it again.
  if (found.sm == 0) found.sm = std::min(nvptx_target(device).sm, gpu_facts(found).sm);
  return found;
}

Nest as_defined(const Database::Origin& origin) { return nest_from_json(json_from_text(origin.nest_json, "the stored nest")); }

/// Verifies one stored trial, check by check.
class TrialVerifier {
 public:
  TrialVerifier(const Database::Origin& origin, const TrialRecord& trial, const MeasureOptions& options)
      : origin_(origin), trial_(trial), options_(options), nest_(as_defined(origin)) {}

  Verification run() {
    if (trial_.kernel) add(passed(Check::kernel_hash, trial_.kernel->hash));
    if (trial_.status != TrialStatus::ok && trial_.status != TrialStatus::slow)
      add(passed(Check::as_measured,
                 fmt::format("{} by code revision {}: {}", to_string(trial_.status), trial_.revision, trial_.reason)));
    add(check_nest(nest_, origin_.problem.nest_digest));
    try {
      check_steps();
    } catch (const LackOfResources&) {
      throw;
    } catch (const UserError& error) {
      add(failed(Check::steps, TrialStatus::illegal, error.what()));
    }
    return std::move(result_);
  }

 private:
  void add(Finding finding) { result_.findings.push_back(std::move(finding)); }

  void check_steps() {
    const Sizes& sizes = origin_.problem.sizes;
    const Schedule schedule = replay_trial_steps(nest_, sizes, json_from_text(trial_.steps, "the stored schedule"));
    const TileProgram program = target_program(schedule, origin_.device.kind != "host");
    const NvptxTarget gpu = nvptx_target(origin_.device);
    const std::optional<Target> target = target_for(origin_.device, options_.target);
    std::optional<CodeCertificate> code;
    std::optional<CompiledKernel> kernel;
    if (!target) {
      code.emplace().program = prove_program(program, schedule);
      if (code->program.verdict != ProofVerdict::refuted) kernel = compile(program, gpu, *code);
      prove_operands(program, schedule, code->kernels.zeroed, code->program);
    }
    result_.certificate = certify(schedule, program, gpu, code);
    if (!add_proofs(schedule, result_)) return;
    if (target) return run_here(*target, schedule);
    compare_certificate();
    add(check_assembles(*kernel, origin_.device));
  }

  static CompiledKernel compile(const TileProgram& program, const NvptxTarget& gpu, CodeCertificate& code) {
    CompiledNvptx compiled = compile_nvptx(program, gpu);
    code.kernels = std::move(compiled.certificate);
    return std::move(compiled.kernel);
  }

  void run_here(const Target& target, const Schedule& schedule) {
    const Sizes& sizes = origin_.problem.sizes;
    MeasureOptions here = options_;
    here.target = target;
    result_.measured = measure_schedule(schedule, nest_, sizes, here);
    result_.device = device_identity(here.target, here.threads);
    const std::string& compiled = result_.measured->certificate.text;
    if (!compiled.empty()) result_.certificate.code = code_certificate_from_json(json_from_text(compiled, "a certificate"));
    compare_certificate();
    add(check_compiled_now(*result_.measured));
    if (!trial_.kernel) return;
    if (!trial_.trusted) return add(not_run(Check::stored_kernel, "it is signed by nobody who is trusted (nestor db trust)"));
    add(check_stored_kernel(nest_, sizes, schedule, *trial_.kernel, here));
  }

  /// Other words are no fault of the trial: what holds is proved again. But who reads sees both.
  void compare_certificate() {
    const CertificateRecord& stored = trial_.certificate;
    if (!trial_.kernel) return;
    const std::string when = fmt::format("{} by {}, code revision {}", trial_.created, trial_.toolchain, trial_.revision);
    if (stored.digest.empty()) return add(passed(Check::certificate, "none was stored with the kernel, " + when));
    if (stored.digest == certificate_digest(code_certificate_to_json(result_.certificate.code).dump()))
      return add(passed(Check::certificate, "the same as was stored with the kernel, " + when));
    if (stored.text.empty())
      return add(passed(Check::certificate, fmt::format("another than that of the kernel, {}, whose text is not here", when)));
    try {
      result_.stored = code_certificate_from_json(json_from_text(stored.text, "the stored certificate"));
    } catch (const UserError& error) {
      return add(failed(Check::certificate, TrialStatus::wrong, error.what()));
    }
    add(passed(Check::certificate, fmt::format("another than that of the kernel, {}: both are printed", when)));
  }

  const Database::Origin& origin_;
  const TrialRecord& trial_;
  const MeasureOptions& options_;
  Nest nest_;
  Verification result_;
};

}  // namespace

std::string_view to_string(Check check) { return kCheckNames.at(static_cast<std::size_t>(check)); }

nlohmann::json findings_to_json(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back({{"check", to_string(finding.check)}, {"passed", !finding.failed()}, {"detail", finding.detail}});
  return list;
}

bool Verification::passed() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.failed(); });
}

Verification verify_schedule(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options) {
  Verification result;
  result.certificate = certify(schedule, target_program(schedule, options.target.is_gpu()),
                               nvptx_target(device_identity(options.target, options.threads)));
  if (!add_proofs(schedule, result)) return result;
  result.findings.push_back(check_compiled_now(measure_schedule(schedule, nest, sizes, options)));
  return result;
}

Verification verify_trial(const Database& database, std::int64_t trial_id, const MeasureOptions& options) {
  const std::optional<Database::Origin> origin = database.origin(trial_id);
  if (!origin) user_error("the database has no trial {}", trial_id);
  std::optional<TrialRecord> trial;
  try {
    trial = database.trial(trial_id);
  } catch (const UserError& error) {
    return {.findings = {failed(Check::kernel_hash, TrialStatus::wrong, error.what())}, .certificate = {}};
  }
  return TrialVerifier(*origin, *trial, options).run();
}

Verification verify_steps(const Database& database, std::int64_t trial_id, const MeasureOptions& options) {
  const std::optional<Database::Origin> origin = database.origin(trial_id);
  const std::optional<TrialRecord> trial = database.trial(trial_id, false);
  if (!origin || !trial) user_error("the database has no trial {}", trial_id);
  return TrialVerifier(*origin, *trial, options).run();
}

}  // namespace nestor
