// The fastest trials of equal devices, by schedule.
#include "autotune/finalists.h"

#include "autotune/trial/trial_spelling.h"
#include "support/codegen_revision.h"
#include "support/system/json_text.h"

#include <algorithm>

namespace nestor {

std::vector<Finalist> finalists(const Database& database, const DeviceIdentity& device, const ProblemKey& problem,
                                const std::set<std::string>& measured, int most) {
  std::vector<TrialRecord> trials = database.trials(device, problem);
  std::erase_if(trials, [&](const TrialRecord& trial) {
    const bool of_now = trial.revision == kCodegenRevisions.of(device.kind);
    return trial.own_device || trial.status != TrialStatus::ok || !of_now || !trial.trusted;
  });
  std::stable_sort(trials.begin(), trials.end(),
                   [](const TrialRecord& a, const TrialRecord& b) { return a.median_ms < b.median_ms; });
  std::vector<Finalist> found;
  std::set<std::string> seen = measured;
  for (const TrialRecord& trial : trials) {
    if (static_cast<int>(found.size()) >= most) break;
    nlohmann::json json = json_or_discarded(trial.steps);
    if (!json.is_object() || !json.contains("parameters")) continue;
    json = current_trial_steps(std::move(json));
    const std::string key = trial_key(json);
    if (seen.insert(key).second) found.push_back({key, json.at("parameters").get<std::map<std::string, std::int64_t>>()});
  }
  return found;
}

}  // namespace nestor
