// Old names of parameters and steps, read as those of today.
#include "autotune/trial/trial_spelling.h"

#include "nestor/error.h"
#include "poly/schedule/order/step.h"
#include "support/knobs.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace nestor {
namespace {

using nlohmann::json;

/// Parameters that are no knobs of a loop: what they were called, what they are.
constexpr std::array<std::pair<const char*, const char*>, 6> kRenamed{{{"split", "split_axis"},
                                                                       {"parts", "num_splits"},
                                                                       {"stream", "reduction_axis"},
                                                                       {"stream_tile", "reduction_tile"},
                                                                       {"ahead", "prefetch"},
                                                                       {"pack", "pack_gqa"}}};

void rename(json& values, const char* from, const char* to) {
  if (!values.contains(from)) return;
  values[to] = values.at(from);
  values.erase(from);
}

json current_parameters(json values) {
  if (!values.is_object()) return values;
  for (const auto& [from, to] : kRenamed) rename(values, from, to);
  for (const KnobStep& step : knob_steps()) {
    for (const Knob& knob : step.knobs) {
      for (const char* from : knob.formerly) rename(values, from, knob.name);
    }
  }
  // Clusters on tensor cores had a parameter of their own, beside that of other kernels.
  if (values.contains("multicast")) {
    const bool used = values.contains("warpgroups") && values.at("warpgroups") != 0;
    used ? rename(values, "multicast", "cluster") : static_cast<void>(values.erase("multicast"));
  }
  return values;
}

std::size_t place_in_table(const Step& step) {
  const KnobStep* known = find_knob_step(step.name);
  return static_cast<std::size_t>(known - knob_steps().data());
}

/// Steps in a row that set knobs may stand in any order.
void sort_knobs(std::vector<Step>& steps) {
  const auto sets_knobs = [](const Step& step) { return find_knob_step(step.name) != nullptr; };
  for (auto begin = steps.begin(); begin != steps.end();) {
    begin = std::find_if(begin, steps.end(), sets_knobs);
    const auto end = std::find_if_not(begin, steps.end(), sets_knobs);
    std::stable_sort(begin, end, [](const Step& a, const Step& b) { return place_in_table(a) < place_in_table(b); });
    begin = end;
  }
}

json with_current_steps(json stored, bool sorted) {
  if (!stored.is_object() || !stored.contains("steps") || !stored.at("steps").is_array()) return stored;
  std::vector<Step> steps;
  try {
    for (const json& step : stored.at("steps")) steps.push_back(step_from_json(step));
  } catch (const UserError&) {  // written by another program
    return stored;
  }
  if (sorted) sort_knobs(steps);
  json list = json::array();
  for (const Step& step : steps) list.push_back(step_to_json(step));
  stored["steps"] = std::move(list);
  return stored;
}

}  // namespace

json current_trial_steps(json stored) {
  stored = with_current_steps(std::move(stored), false);
  if (stored.is_object() && stored.contains("parameters")) stored["parameters"] = current_parameters(stored.at("parameters"));
  return stored;
}

std::string trial_key(json stored) {
  if (stored.is_object()) stored.erase("parameters");
  return with_current_steps(std::move(stored), true).dump();
}

}  // namespace nestor
