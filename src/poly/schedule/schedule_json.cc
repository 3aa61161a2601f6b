// Schedules as JSON: the digest of the nest and the steps.
#include "poly/nest/nest_json.h"
#include "poly/schedule/schedule.h"
#include "support/error.h"

namespace nestor {

nlohmann::json schedule_to_json(const Schedule& schedule) {
  nlohmann::json steps = nlohmann::json::array();
  for (const Step& step : schedule.steps()) steps.push_back(step_to_json(step));
  const Nest& nest = schedule.original_nest();
  return {{"op", nest.op}, {"nest", digest(nest)}, {"steps", std::move(steps)}};
}

Schedule schedule_from_json(const Nest& nest, const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("nest") || !json["nest"].is_string() || !json.contains("steps") ||
      !json["steps"].is_array()) {
    user_error("a schedule must be an object with \"nest\" (a digest) and \"steps\" (an array)");
  }
  const std::string wanted = json["nest"].get<std::string>();
  const std::string actual = digest(nest);
  if (wanted != actual) {
    const std::string from = json.contains("op") && json["op"].is_string() ? " (" + json["op"].get<std::string>() + ")" : "";
    user_error("the schedule is for the nest {}{}, but {} is the nest {}; record the schedule again for this definition", wanted,
               from, nest.op, actual);
  }
  Schedule schedule{nest};
  for (const nlohmann::json& step : json["steps"]) schedule = schedule.apply(step_from_json(step));
  return schedule;
}

}  // namespace nestor
