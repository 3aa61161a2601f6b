// Checks and canonical forms of records.
#include "db/records/record.h"

#include "db/records/kernel_pack.h"
#include "db/trust/blake2b.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "support/launch_recipe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <regex>

namespace nestor {
namespace {

using nlohmann::json;

std::string canonical_json(const std::string& text, const char* what, const char* empty) {
  if (text.empty()) return empty;
  require_shallow(text, what);
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) user_error("{} is not JSON: {:.60}", what, text);
  return parsed.dump();
}

/// What is no UTF-8 becomes U+FFFD, as it would in an export.
void repair(std::string& text) {
  const std::string quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  if (quoted.find("\xef\xbf\xbd") != std::string::npos) text = json::parse(quoted).get<std::string>();
}

/// Steps as the tuner and its readers take them: a list, or an object whose parameters are integers by name.
void require_steps(const std::string& steps) {
  const json parsed = json::parse(steps);
  if (parsed.is_array()) return;
  if (!parsed.is_object()) user_error("the steps are neither a list nor an object: {:.60}", steps);
  const auto parameters = parsed.find("parameters");
  if (parameters == parsed.end()) return;
  const bool good = parameters->is_object() && std::all_of(parameters->begin(), parameters->end(),
                                                           [](const json& value) { return value.is_number_integer(); });
  if (!good) user_error("the steps' \"parameters\" are no object of integers: {:.60}", parameters->dump());
}

std::string now_utc() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

bool is_utc_time(const std::string& text) {
  static const std::regex kPattern(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)");
  return std::regex_match(text, kPattern);
}

void require_time(double value, const char* what) {
  if (!std::isfinite(value) || value < 0) user_error("{} is {}, not a time in milliseconds", what, value);
}

void normalise_kernel(KernelRecord& kernel, CodePlace code) {
  const bool here = code == CodePlace::record;
  if (here) {
    const std::string given = kernel_hash(kernel.code, kernel.recipe);
    if (!kernel.hash.empty() && !is_hash_of(kernel.hash, kernel.code, kernel.recipe))
      user_error("the kernel's hash is {}, but its contents give {}", kernel.hash, given);
    if (kernel.code.empty()) user_error("the kernel's code is empty");
    if (kernel.code.size() > kLargestPackedKernel)
      user_error("the kernel's code has {} bytes; at most {} are stored", kernel.code.size(), kLargestPackedKernel);
  } else if (kernel.hash.empty()) {
    user_error("the kernel's hash is empty, so that a pack cannot have its code");
  }
  if (kernel.architecture.empty()) user_error("the kernel's architecture is empty");
  kernel.recipe = canonical_json(kernel.recipe, "the launch recipe", "");
  recipe_from_json(json::parse(kernel.recipe.empty() ? "null" : kernel.recipe));
  if (here) kernel.hash = kernel_hash(kernel.code, kernel.recipe);
}

void normalise_certificate(TrialRecord& trial) {
  CertificateRecord& certificate = trial.certificate;
  certificate.text = canonical_json(certificate.text, "the certificate", "");
  if (!certificate.text.empty()) {
    const std::string given = certificate_digest(certificate.text);
    if (!certificate.digest.empty() && certificate.digest != given)
      user_error("the certificate's digest is {}, but its text gives {}", certificate.digest, given);
    certificate.digest = given;
  }
  if (!certificate.digest.empty() && !trial.kernel) user_error("the trial has a certificate, but no kernel");
}

}  // namespace

std::string canonical_sizes(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}

void require_shallow(std::string_view json_text, const char* what) {
  constexpr int kDeepest = 500;
  int depth = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < json_text.size(); ++at) {
    const char c = json_text[at];
    if (quoted) {
      if (c == '\\') ++at;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) user_error("{} nests arrays and objects more than {} deep", what, kDeepest);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

std::string seal_of(const Record& record) {
  const TrialRecord& trial = record.trial;
  const DeviceIdentity& device = record.device;
  const ProblemKey& problem = record.problem;
  Blake2b seal;
  seal.add("nestor record 1").add(device.kind).add(device.name).add(device.arch).add(std::int64_t{device.units});
  seal.add(device.details).add(problem.op).add(problem.variant).add(problem.nest_digest).add(canonical_sizes(problem.sizes));
  seal.add(trial.steps).add(to_string(trial.status)).add(trial.reason);
  for (const double sample : trial.samples_ms) seal.add(sample);
  seal.add("end of samples").add(trial.median_ms).add(trial.max_error).add(trial.toolchain).add(trial.created).add(trial.report);
  seal.add(std::int64_t{trial.revision}).add(std::int64_t{trial.checked});
  if (trial.kernel) seal.add(trial.kernel->architecture).add(trial.kernel->hash);
  // Records of older programs have none, and keep their seals.
  if (!trial.certificate.digest.empty()) seal.add("certificate").add(trial.certificate.digest);
  return seal.hex();
}

void normalise(Record& record, CodePlace code) {
  for (std::string* text : {&record.trial.reason, &record.trial.toolchain, &record.device.kind, &record.device.name,
                            &record.device.arch, &record.problem.op, &record.problem.variant, &record.problem.nest_digest})
    repair(*text);
  if (record.problem.op.empty()) user_error("the operator's name is empty");
  if (record.problem.nest_digest.empty()) user_error("the nest's digest is empty");
  for (const auto& [name, value] : record.problem.sizes) {
    if (name.empty() || name.find_first_of("=,") != std::string::npos) user_error("\"{}\" is no name of a size", name);
    if (value <= 0) user_error("size {} is {}; sizes are positive", name, value);
  }
  if (record.device.kind.empty() || record.device.arch.empty()) user_error("the device has no kind or no architecture");
  record.device.details = canonical_json(record.device.details, "the device's details", "{}");
  record.nest_json = canonical_json(record.nest_json, "the nest", "null");
  TrialRecord& trial = record.trial;
  trial.steps = canonical_json(trial.steps, "the steps", "[]");
  require_steps(trial.steps);
  trial.report = canonical_json(trial.report, "the report", "");
  require_time(trial.median_ms, "the median");
  for (const double sample : trial.samples_ms) require_time(sample, "a sample");
  if (std::isnan(trial.max_error)) trial.max_error = std::numeric_limits<double>::infinity();
  if (trial.max_error < 0) user_error("the error is {}, below 0", trial.max_error);
  if (trial.created.empty()) trial.created = now_utc();
  if (!is_utc_time(trial.created)) user_error("\"{}\" is no time like 2025-01-31T12:00:00Z", trial.created);
  for (int* revision : {&trial.revision, &trial.checked}) {
    if (*revision == TrialRecord::kThisProgram) *revision = kCodegenRevisions.of(record.device.kind);
  }
  if (trial.revision < 0 || trial.checked < 0) user_error("a revision is {}, below 0", std::min(trial.revision, trial.checked));
  if (trial.status != TrialStatus::ok) trial.checked = 0;
  if (trial.kernel) normalise_kernel(*trial.kernel, code);
  normalise_certificate(trial);
}

}  // namespace nestor
