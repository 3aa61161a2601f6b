// Re-checks trials: replay, certificate, a fresh compile, and the stored bytes against the oracle.
#include "api/verify.h"

#include "autotune/measure/host_measurer.h"
#include "autotune/measure/oracle.h"
#include "codegen/host/host_backend.h"
#include "poly/nest_json.h"
#include "support/architecture.h"
#include "support/error.h"

#include <algorithm>
#include <thread>

namespace nestor {
namespace {

constexpr const char* kStoredCheck = "stored kernel against the oracle";

std::map<std::string, double> scalar_values(const Nest& nest, const MeasureOptions& options) {
  std::map<std::string, double> values;
  for (const ScalarParam& scalar : nest.scalars) values[scalar.name] = scalar.default_value;
  for (const auto& [name, value] : options.scalars) values[name] = value;
  return values;
}

/// Runs a kernel exactly as stored, once, and compares it with the oracle.
class StoredKernelRunner : public TrialRunner {
 public:
  StoredKernelRunner(const Nest& nest, Sizes sizes, CompiledKernel kernel, const MeasureOptions& options)
      : nest_(nest), sizes_(std::move(sizes)), kernel_(std::move(kernel)), options_(options) {}

  std::optional<TrialOutcome> prepare(const TrialJob&) override { return std::nullopt; }

  TrialOutcome run(const TrialJob&) override {
    HostTensors tensors = make_arguments(nest_, sizes_, options_.data_seed);
    const std::map<std::string, double> scalars = scalar_values(nest_, options_);
    const std::vector<OracleSample> expected =
        reference_samples(nest_, sizes_, scalars, tensors, options_.oracle_samples, options_.data_seed);
    launch(tensors, scalars);
    TrialOutcome outcome;
    std::string where;
    outcome.max_error = worst_error(expected, tensors, &where);
    const bool right = outcome.max_error <= nest_.tolerance;
    outcome.status = right ? TrialStatus::ok : TrialStatus::wrong;
    if (!right) outcome.reason = fmt::format("error {:.3g} at {}, tolerance {:.3g}", outcome.max_error, where, nest_.tolerance);
    return outcome;
  }

 private:
  void launch(HostTensors& tensors, const std::map<std::string, double>& scalars) const {
    std::vector<void*> pointers;
    std::vector<std::int64_t> strides;
    for (const ArgumentSpec& argument : kernel_.recipe.arguments) {
      HostTensor& tensor = tensors.at(argument.name);
      pointers.push_back(tensor.bytes.data());
      std::vector<std::int64_t> dense(tensor.shape.size(), 1);
      for (std::size_t k = dense.size(); k-- > 1;) dense[k - 1] = dense[k] * tensor.shape[k];
      strides.insert(strides.end(), dense.begin(), dense.end());
    }
    std::vector<double> scalar_list;
    for (const ScalarSpec& scalar : kernel_.recipe.scalars) scalar_list.push_back(scalars.at(scalar.name));
    const int threads =
        options_.threads > 0 ? options_.threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    LoadedHostKernel(kernel_).run(pointers, strides, sizes_, scalar_list, threads);
  }

  Nest nest_;
  Sizes sizes_;
  CompiledKernel kernel_;
  MeasureOptions options_;
};

Finding check_oracle(const std::string& check, const TrialRecord& record) {
  const bool passed = record.status == TrialStatus::ok || record.status == TrialStatus::slow;
  if (!passed) return {check, false, fmt::format("{}: {}", to_string(record.status), record.reason)};
  return {check, true, fmt::format("worst error {:.3g}, median {:.4g} ms", record.max_error, record.median_ms)};
}

Finding check_stored_bytes(const Nest& nest, const Sizes& sizes, const KernelRecord& record, const MeasureOptions& options) {
  CompiledKernel kernel{record.architecture, record.code, recipe_from_json(nlohmann::json::parse(record.recipe))};
  WorkerPool pool(
      {.workers = 1, .prepare_timeout_s = options.compile_timeout_s, .run_timeout_s = options.run_timeout_s, .memory_limit = 0},
      [&] { return std::make_unique<StoredKernelRunner>(nest, sizes, kernel, options); });
  const TrialOutcome outcome = pool.measure({TrialJob{}}).front();
  if (outcome.status != TrialStatus::ok)
    return {kStoredCheck, false, fmt::format("{}: {}", to_string(outcome.status), outcome.reason)};
  return {kStoredCheck, true, fmt::format("worst error {:.3g}, tolerance {:.3g}", outcome.max_error, nest.tolerance)};
}

/// Kernels for another CPU stay unrun; their recompiled form was checked already.
Finding check_stored_kernel(const Nest& nest, const Sizes& sizes, const KernelRecord& stored, const MeasureOptions& options) {
  std::string why;
  if (!can_run(stored.architecture, "host", host_cpu_name(), &why)) return {kStoredCheck, true, "not run: " + why};
  return check_stored_bytes(nest, sizes, stored, options);
}

Finding check_nest(const Nest& nest, const std::string& expected) {
  const std::string found = digest(nest);
  if (found == expected) return {"nest digest", true, found};
  return {"nest digest", false, fmt::format("the stored nest has {}, the trial names {}", found, expected)};
}

/// The part that needs no record: certificate, compile and run. Adds to `result`.
void prove_and_measure(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options,
                       Verification& result) {
  result.certificate = certify(schedule, build_tile_program(schedule));
  result.findings.push_back({"steps", true, fmt::format("{} steps replayed, each proved", schedule.steps().size())});
  result.findings.push_back(
      {"dependences", true, fmt::format("{} checked against the final order", result.certificate.dependences.size())});
  result.findings.push_back(check_oracle("compiled now, against the oracle", measure_schedule(schedule, nest, sizes, options)));
}

Nest as_defined(const Database::Origin& origin) { return nest_from_json(nlohmann::json::parse(origin.nest_json)); }

}  // namespace

bool Verification::passed() const {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.passed; });
}

Verification verify_schedule(const Nest& nest, const Sizes& sizes, const Schedule& schedule, const MeasureOptions& options) {
  Verification result;
  prove_and_measure(nest, sizes, schedule, options, result);
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
  const Nest nest = as_defined(*origin);
  result.findings.push_back(check_nest(nest, origin->problem.nest_digest));
  try {
    const Sizes& sizes = origin->problem.sizes;
    const Schedule schedule = replay_trial_steps(nest, sizes, nlohmann::json::parse(trial->steps));
    prove_and_measure(nest, sizes, schedule, options, result);
    if (trial->kernel) result.findings.push_back(check_stored_kernel(nest, sizes, *trial->kernel, options));
  } catch (const UserError& error) {
    result.findings.push_back({"steps", false, error.what()});
  }
  return result;
}

}  // namespace nestor
