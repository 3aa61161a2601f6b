// Columns from trial records; texts that repeat are kept once.
#include "api/report/trial_columns.h"

#include "autotune/trial/statistics.h"
#include "autotune/trial/trial_spelling.h"
#include "poly/schedule/order/step.h"

#include <cmath>
#include <ctime>
#include <map>
#include <numeric>
#include <unordered_map>

namespace nestor {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLongestReason = 240;
constexpr std::size_t kMostReasonBytes = 400'000;  ///< of all; the text of further ones is left out

/// Texts by number, in the order of their first use.
class TextTable {
 public:
  int number_of(const std::string& text) {
    const auto [found, added] = numbers_.try_emplace(text, static_cast<int>(texts_.size()));
    if (added) texts_.push_back(text);
    return found->second;
  }
  bool has(const std::string& text) const { return numbers_.contains(text); }
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> texts_;
};

Json parsed(const std::string& text) {
  Json json = json_or_discarded(text);
  return json.is_object() ? json : Json::object();
}

double number_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

/// Four digits are as much as a picture shows.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10.0, 4 - std::ceil(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

std::string cut_reason(const std::string& reason) {
  if (reason.size() <= kLongestReason) return reason;
  std::size_t end = kLongestReason;
  while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xC0U) == 0x80U) --end;  // not within a character
  return reason.substr(0, end) + "...";
}

/// Where a trial came from: what the tuner wrote down, else what its steps tell.
std::string origin_of(const Json& report, const Json& steps, const std::string& baseline_key) {
  if (!baseline_key.empty() && trial_key(steps) == baseline_key) return "starting point";
  const auto told = report.find("origin");
  if (told != report.end() && told->is_string()) return told->get<std::string>();
  return steps.contains("parameters") ? "search" : "by hand";
}

/// Columns under construction.
class Columns {
 public:
  explicit Columns(std::string baseline_key) : baseline_key_(std::move(baseline_key)) {}

  void add(const TrialRecord& trial, std::int64_t first) {
    const Json steps = current_trial_steps(parsed(trial.steps));
    const Json report = parsed(trial.report);
    push("id", trial.id);
    push("status", statuses_.number_of(std::string(to_string(trial.status))));
    push("ms", rounded(trial.median_ms));
    push("seconds", seconds_of(trial.created) - first);
    push("origin", origins_.number_of(origin_of(report, steps, baseline_key_)));
    push("reason", reason_number(trial.reason));
    push("error", rounded(trial.max_error));
    push("compile", rounded(number_in(report, "compile_ms")));
    push("assemble", rounded(number_in(report, "assemble_ms") + number_in(report, "load_ms")));
    push("check", rounded(1e3 * number_in(report, "check_s")));
    push("measure", rounded(std::accumulate(trial.samples_ms.begin(), trial.samples_ms.end(), 0.0)));
    add_parameters(steps);
    ++count_;
  }

  Json finish() {
    columns_["statuses"] = statuses_.texts();
    columns_["origins"] = origins_.texts();
    columns_["reasons"] = reasons_.texts();
    columns_["parameters"] = Json::object();
    columns_["constant"] = Json::object();
    for (auto& [name, values] : parameters_) {
      values.resize(count_);
      const bool same =
          std::all_of(values.begin(), values.end(), [&, &all = values](const Json& value) { return value == all.front(); });
      if (same) {
        columns_["constant"][name] = values.front();
      } else {
        columns_["parameters"][name] = std::move(values);
      }
    }
    return std::move(columns_);
  }

 private:
  template <class Value>
  void push(const char* column, const Value& value) {
    columns_[column].push_back(value);
  }

  int reason_number(const std::string& reason) {
    std::string text = cut_reason(reason);
    if (!reasons_.has(text)) {
      if (reason_bytes_ + text.size() > kMostReasonBytes) text = "(this report is full: see the trial itself)";
      reason_bytes_ += text.size();
    }
    return reasons_.number_of(text);
  }

  void add_parameters(const Json& steps) {
    const auto found = steps.find("parameters");
    if (found == steps.end() || !found->is_object()) return;
    for (const auto& [name, value] : found->items()) {
      std::vector<Json>& column = parameters_[name];
      column.resize(count_);
      column.push_back(value.is_number_integer() ? value : Json());
    }
  }

  std::string baseline_key_;
  Json columns_ = Json::object();
  TextTable statuses_, origins_, reasons_;
  std::size_t reason_bytes_ = 0, count_ = 0;
  std::map<std::string, std::vector<Json>> parameters_;
};

}  // namespace

std::int64_t seconds_of(const std::string& created) {
  std::tm time{};
  const char* end = strptime(created.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  return end == nullptr || *end != 0 ? 0 : static_cast<std::int64_t>(timegm(&time));
}

Json trial_columns(const std::vector<TrialRecord>& trials, const std::string& baseline_key) {
  Columns columns(baseline_key);
  const std::int64_t first = trials.empty() ? 0 : seconds_of(trials.front().created);
  for (const TrialRecord& trial : trials) columns.add(trial, first);
  Json json = columns.finish();
  json["first"] = trials.empty() ? "" : trials.front().created;
  return json;
}

Json trial_in_full(const TrialRecord& trial) {
  const Json steps = current_trial_steps(parsed(trial.steps));
  Json texts = Json::array();
  for (const Json& step : steps.value("steps", Json::array())) {
    try {
      texts.push_back(describe(step_from_json(step)));
    } catch (const std::exception&) {
      texts.push_back(step.dump());  // of a program that knew other steps
    }
  }
  const MedianInterval interval = median_interval(trial.samples_ms);
  return {{"id", trial.id},
          {"status", to_string(trial.status)},
          {"reason", trial.reason},
          {"ms", trial.median_ms},
          {"low", interval.lower},
          {"high", interval.upper},
          {"samples", trial.samples_ms},
          {"max_error", trial.max_error},
          {"created", trial.created},
          {"toolchain", trial.toolchain},
          {"revision", trial.revision},
          {"checked", trial.checked},
          {"kernel", trial.kernel ? Json(trial.kernel->hash) : Json()},
          {"steps", texts},
          {"fixed", steps.value("fixed", Json::object())},
          {"parameters", steps.value("parameters", Json::object())},
          {"report", parsed(trial.report)}};
}

}  // namespace nestor
