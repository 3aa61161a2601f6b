// Checks and canonical forms of records.
#include "db/records/record.h"

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
  const json parsed = json::parse(text, nullptr, false);
  if (parsed.is_discarded()) user_error("{} is not JSON: {:.60}", what, text);
  return parsed.dump();
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
    if (!kernel.hash.empty() && kernel.hash != given)
      user_error("the kernel's hash is {}, but its contents give {}", kernel.hash, given);
    if (kernel.code.empty()) user_error("the kernel's code is empty");
  } else if (kernel.hash.empty()) {
    user_error("the kernel's hash is empty, so that a pack cannot have its code");
  }
  if (kernel.architecture.empty()) user_error("the kernel's architecture is empty");
  kernel.recipe = canonical_json(kernel.recipe, "the launch recipe", "");
  recipe_from_json(json::parse(kernel.recipe.empty() ? "null" : kernel.recipe));
  if (here) kernel.hash = kernel_hash(kernel.code, kernel.recipe);
}

}  // namespace

std::string canonical_sizes(const Sizes& sizes) {
  std::string text;
  for (const auto& [name, value] : sizes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}

void normalise(Record& record, CodePlace code) {
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
  trial.report = canonical_json(trial.report, "the report", "");
  require_time(trial.median_ms, "the median");
  for (const double sample : trial.samples_ms) require_time(sample, "a sample");
  if (std::isnan(trial.max_error)) trial.max_error = std::numeric_limits<double>::infinity();
  if (trial.max_error < 0) user_error("the error is {}, below 0", trial.max_error);
  if (trial.created.empty()) trial.created = now_utc();
  if (!is_utc_time(trial.created)) user_error("\"{}\" is no time like 2025-01-31T12:00:00Z", trial.created);
  if (trial.revision < 0 || trial.checked < 0) user_error("a revision is {}, below 0", std::min(trial.revision, trial.checked));
  if (trial.status != TrialStatus::ok) trial.checked = 0;
  if (trial.kernel) normalise_kernel(*trial.kernel, code);
}

}  // namespace nestor
