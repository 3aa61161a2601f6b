// Cache of schedules that have had their algebra steps.
#include "autotune/trial/base_schedules.h"

#include <optional>

namespace nestor {

std::size_t BaseSchedules::rule_count(const std::vector<Step>& steps) {
  std::size_t count = 0;
  while (count < steps.size() && steps[count].name == "apply_rule") ++count;
  return count;
}

const Schedule& BaseSchedules::after_rules(const std::vector<Step>& steps) {
  // Where each key of fewer steps ends.
  std::vector<std::size_t> ends{0};
  std::string key;
  for (std::size_t k = 0; k < rule_count(steps); ++k) {
    key += step_to_json(steps[k]).dump() + "\n";
    ends.push_back(key.size());
  }
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  // From the most steps that are known: rules are tried one after the other.
  std::optional<Schedule> schedule;
  std::size_t applied = ends.size() - 1;
  while (!schedule && applied > 0) {
    const auto known = known_.find(key.substr(0, ends[--applied]));
    if (known != known_.end()) schedule = known->second;
  }
  if (!schedule) schedule = known_.try_emplace("", nest_).first->second;
  const auto first = steps.begin() + static_cast<std::ptrdiff_t>(applied),
             last = steps.begin() + static_cast<std::ptrdiff_t>(ends.size() - 1);
  return known_.emplace(key, schedule->apply_all({first, last})).first->second;
}

const std::vector<RuleMatch>& BaseSchedules::matches(const Rule& rule, const std::vector<Step>& steps) {
  const Schedule& schedule = after_rules(steps);
  const std::pair key(&schedule, rule.name);
  if (const auto known = matches_.find(key); known != matches_.end()) return known->second;
  return matches_.emplace(key, rule.find(schedule.nest())).first->second;
}

const Schedule& BaseSchedules::base(const std::vector<Step>& steps) {
  const Schedule& schedule = after_rules(steps);
  schedule.dependences();
  return schedule;
}

Schedule BaseSchedules::replay(const std::vector<Step>& steps) {
  return base(steps).apply_all({steps.begin() + static_cast<std::ptrdiff_t>(rule_count(steps)), steps.end()});
}

}  // namespace nestor
