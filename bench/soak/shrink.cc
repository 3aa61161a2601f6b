// Greedy: from the last step to the first, again and again until nothing can go.
#include "soak/shrink.h"

#include "poly/schedule/schedule.h"

namespace nestor::soak {
namespace {

/// Leaves out elements of `list` of a case, while `holds`.
bool shrink_list(Case& found, const std::function<nlohmann::json(const Case&)>& get,
                 const std::function<void(Case&, const nlohmann::json&)>& set, std::size_t least,
                 const std::function<bool(const Case&)>& holds) {
  bool changed = false;
  for (std::size_t k = get(found).size(); k-- > 0;) {
    nlohmann::json fewer = get(found);
    if (fewer.size() <= least) break;
    fewer.erase(k);
    Case smaller = found;
    set(smaller, fewer);
    if (!holds(smaller)) continue;
    found = std::move(smaller);
    changed = true;
  }
  return changed;
}

}  // namespace

Case shrunk(Case found, const Outcome& outcome, const std::function<Outcome(const Case&)>& attempt) {
  const auto holds = [&](const Case& smaller) { return attempt(smaller).verdict == outcome.verdict; };
  shrink_list(
      found, [](const Case& c) { return case_to_json(c).at("runs"); },
      [](Case& c, const nlohmann::json& runs) {
        nlohmann::json json = case_to_json(c);
        json["runs"] = runs;
        c = case_from_json(json);
      },
      1, holds);
  const auto steps = [](const Case& c) { return c.steps.at("steps"); };
  const auto set_steps = [](Case& c, const nlohmann::json& fewer) { c.steps["steps"] = fewer; };
  while (shrink_list(found, steps, set_steps, 0, holds)) {}
  found.origin += ", shrunk";
  return found;
}

std::string steps_text(const Case& shown) {
  std::string text;
  for (const nlohmann::json& step : shown.steps.at("steps")) text += describe(step_from_json(step)) + "\n";
  return text;
}

}  // namespace nestor::soak
