// Reads plans from records and from the space of the search.
#include "api/explore/known_plans.h"

#include "autotune/near_problems.h"
#include "autotune/space/space.h"
#include "autotune/trial/trial_spelling.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor {
namespace {

constexpr std::size_t kMostGuesses = 6;

std::optional<KnownPlan> plan_of(const std::string& stored, PlanSource source, std::string name, double ms) {
  const nlohmann::json json = current_trial_steps(json_or_discarded(stored));
  if (!json.is_object() || !json.contains("steps")) return std::nullopt;
  KnownPlan plan{source, std::move(name), ms, {}, {}};
  try {
    for (const nlohmann::json& step : json.at("steps")) plan.steps.push_back(step_from_json(step));
  } catch (const UserError&) {  // steps of a newer program
    return std::nullopt;
  }
  for (const Step& step : plan.steps) plan.texts.push_back(describe(step));
  return plan;
}

std::string sizes_text(const ProblemKey& near, const ProblemKey& ours) {
  std::string text;
  for (const auto& [name, value] : near.sizes) {
    const auto own = ours.sizes.find(name);
    if (own == ours.sizes.end() || own->second != value) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  }
  if (near.variant != ours.variant) text += (text.empty() ? "" : " ") + near.variant;
  return text;
}

}  // namespace

std::vector<KnownPlan> recorded_plans(const Database& database, const DeviceIdentity& device, const ProblemKey& problem) {
  std::vector<TrialRecord> trials = database.trials(device, problem);
  std::erase_if(trials, [](const TrialRecord& trial) { return trial.status != TrialStatus::ok || trial.median_ms <= 0; });
  std::stable_sort(trials.begin(), trials.end(),
                   [](const TrialRecord& a, const TrialRecord& b) { return a.median_ms < b.median_ms; });
  std::vector<KnownPlan> plans;
  for (const TrialRecord& trial : trials) {
    const char* which = plans.empty() ? "the best trial here, " : "trial ";
    if (auto plan = plan_of(trial.steps, PlanSource::record, fmt::format("{}{}", which, trial.id), trial.median_ms))
      plans.push_back(std::move(*plan));
  }
  return plans;
}

std::vector<KnownPlan> neighbours_plans(const Database& database, const DeviceIdentity& device, const ProblemKey& problem) {
  std::vector<KnownPlan> plans;
  for (const ProblemKey& near : near_problems(database, device, problem).same_operator) {
    const auto best = database.best(device, near, Database::Kernels::unchecked_too);
    if (!best) continue;
    if (auto plan = plan_of(best->steps, PlanSource::neighbour,
                            fmt::format("the best at {}, {}", sizes_text(near, problem), best->id), best->median_ms))
      plans.push_back(std::move(*plan));
  }
  return plans;
}

std::vector<KnownPlan> first_guesses(const Space& space) {
  std::vector<KnownPlan> plans;
  for (const Point& point : space.defaults()) {
    const Candidate candidate = space.candidate(point);
    if (!candidate.infeasible.empty()) continue;
    KnownPlan plan{
        PlanSource::search, fmt::format("guess {} of the search", plans.size() + 1), candidate.least_ms, candidate.steps, {}};
    for (const Step& step : plan.steps) plan.texts.push_back(describe(step));
    plans.push_back(std::move(plan));
    if (plans.size() == kMostGuesses) break;
  }
  return plans;
}

}  // namespace nestor
