// Steps to JSON and back, onto the nest with the same sizes fixed.
#include "autotune/trial/trial_steps.h"

#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <utility>

namespace nestor {

namespace {

nlohmann::json steps_json(const std::string& nest_digest, const Sizes& fixed, const std::vector<Step>& steps,
                          const std::map<std::string, std::int64_t>& parameters) {
  nlohmann::json json{{"nest", nest_digest}, {"fixed", fixed}, {"steps", nlohmann::json::array()}};
  for (const Step& step : steps) json["steps"].push_back(step_to_json(step));
  if (!parameters.empty()) json["parameters"] = parameters;
  return json;
}

}  // namespace

ProblemKey problem_key(const Nest& nest, const Sizes& sizes) {
  return {nest.op, nest.variant, digest(nest), complete_sizes(nest, sizes)};
}

Nest nest_for_tuning(const Nest& nest, const Sizes& sizes, bool fix_all_sizes) {
  return trial_problem(nest, sizes, fix_all_sizes).start;
}

nlohmann::json trial_steps_json(const Nest& nest, const Sizes& fixed, const std::vector<Step>& steps,
                                const std::map<std::string, std::int64_t>& parameters) {
  return steps_json(digest(nest), fixed, steps, parameters);
}

nlohmann::json trial_steps_json(const TrialProblem& problem, const std::vector<Step>& steps,
                                const std::map<std::string, std::int64_t>& parameters) {
  return steps_json(problem.digest, problem.fixed, steps, parameters);
}

Schedule replay_trial_steps(const Nest& nest, const Sizes& sizes, const nlohmann::json& json) {
  if (!json.is_object() || !json.contains("nest") || !json.at("nest").is_string() || !json.contains("steps") ||
      !json.at("steps").is_array()) {
    user_error("a schedule must be a JSON object with \"nest\" (a digest) and \"steps\" (a list)");
  }
  require_flat_json(json, "the schedule");
  const std::string wanted = json.at("nest");
  std::vector<Step> steps;
  for (const auto& step : json.at("steps")) steps.push_back(step_from_json(step));
  const Sizes complete = complete_sizes(nest, sizes);
  if (json.contains("fixed")) {
    if (wanted != digest(nest)) {
      user_error("the schedule is for the nest {}, not for {} ({}, {})", wanted, digest(nest), nest.op, nest.variant);
    }
    Sizes fixed;
    for (const auto& [name, value] : json.at("fixed").items()) {
      if (!value.is_number_integer())
        user_error("the schedule's \"fixed\" must map size names to integers; '{}' is {}", name, value.dump());
      fixed[name] = value.get<std::int64_t>();
    }
    return Schedule(fix_sizes(nest, fixed)).apply_all(steps);
  }
  // A file made from a schedule alone says only which nest it began with.
  for (const Nest& start : {nest_for_tuning(nest, complete, false), nest_for_tuning(nest, complete, true), nest}) {
    if (digest(start) == wanted) return Schedule(start).apply_all(steps);
  }
  user_error("the schedule is for the nest {}, not for {} ({}, {}), whether or not its sizes are fixed", wanted, digest(nest),
             nest.op, nest.variant);
}

}  // namespace nestor
