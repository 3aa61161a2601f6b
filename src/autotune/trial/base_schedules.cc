// Cache of schedules that have had their algebra steps.
#include "autotune/trial/base_schedules.h"

namespace nestor {

std::size_t BaseSchedules::rule_count(const std::vector<Step>& steps) {
  std::size_t count = 0;
  while (count < steps.size() && steps[count].name == "apply_rule") ++count;
  return count;
}

const Schedule& BaseSchedules::base(const std::vector<Step>& steps) {
  std::string key;
  for (std::size_t k = 0; k < rule_count(steps); ++k) key += step_to_json(steps[k]).dump() + "\n";
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  Schedule schedule = Schedule(nest_).apply_all({steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(rule_count(steps))});
  schedule.dependences();
  return known_.emplace(key, std::move(schedule)).first->second;
}

Schedule BaseSchedules::replay(const std::vector<Step>& steps) {
  return base(steps).apply_all({steps.begin() + static_cast<std::ptrdiff_t>(rule_count(steps)), steps.end()});
}

}  // namespace nestor
