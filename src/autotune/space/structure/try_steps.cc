// Illegal steps as a value.
#include "autotune/space/structure/try_steps.h"

namespace nestor {

std::optional<Schedule> try_step(const Schedule& schedule, const Step& step) { return schedule.try_apply(step); }

std::optional<Schedule> try_steps(const Schedule& schedule, const std::vector<Step>& steps) {
  std::optional<Schedule> result = schedule;
  for (const Step& step : steps) {
    result = try_step(*result, step);
    if (!result) return std::nullopt;
  }
  return result;
}

}  // namespace nestor
