// Cases and outcomes as JSON: messages between processes, and reproducers in files.
#include "soak/case.h"

#include "support/error.h"

#include <algorithm>
#include <array>

namespace nestor::soak {
namespace {

constexpr std::array<std::string_view, 3> kEngines{"host", "emulator", "device"};
constexpr std::array<std::string_view, 11> kVerdicts{"right",          "refused", "infeasible", "unproved", "refuted", "wrong",
                                                     "internal error", "crash",   "slow",       "stuck",    "memory"};

template <std::size_t N>
std::size_t position(const std::array<std::string_view, N>& names, std::string_view name, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) user_error("\"{}\" is no {}", name, what);
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::string_view to_string(Engine engine) { return kEngines[static_cast<std::size_t>(engine)]; }
std::string_view to_string(Verdict verdict) { return kVerdicts[static_cast<std::size_t>(verdict)]; }
Verdict verdict_from(std::string_view name) { return static_cast<Verdict>(position(kVerdicts, name, "verdict")); }

nlohmann::json case_to_json(const Case& found) {
  nlohmann::json runs = nlohmann::json::array();
  for (const Run& run : found.runs) runs.push_back({{"sizes", run.sizes}, {"data", run.data}, {"seed", run.seed}});
  return {{"origin", found.origin}, {"engine", to_string(found.engine)},
          {"sm", found.sm},         {"nest", found.nest},
          {"steps", found.steps},   {"runs", runs}};
}

Case case_from_json(const nlohmann::json& json) {
  try {
    Case read;
    read.origin = json.at("origin");
    read.engine = static_cast<Engine>(position(kEngines, json.at("engine").get<std::string>(), "engine"));
    read.sm = json.at("sm");
    read.nest = json.at("nest");
    read.steps = json.at("steps");
    for (const nlohmann::json& run : json.at("runs")) read.runs.push_back({run.at("sizes"), run.at("data"), run.at("seed")});
    return read;
  } catch (const nlohmann::json::exception& error) {
    user_error("this is no case of soak: {}", error.what());
  }
}

nlohmann::json outcome_to_json(const Outcome& outcome) {
  return {{"verdict", to_string(outcome.verdict)},
          {"detail", outcome.detail},
          {"generate_s", outcome.generate_s},
          {"runs", outcome.runs},
          {"stored", outcome.stored}};
}

Outcome outcome_from_json(const nlohmann::json& json) {
  return {verdict_from(json.at("verdict").get<std::string>()), json.at("detail"), json.at("generate_s"), json.at("runs"),
          json.at("stored")};
}

}  // namespace nestor::soak
