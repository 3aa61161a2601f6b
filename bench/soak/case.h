// Case: one candidate with all that is needed to run it again anywhere.
#pragma once

#include "nestor/types.h"
#include "poly/nest/nest.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nestor::soak {

/// Where a candidate runs: as host code, as GPU code in the emulator, or as GPU code on a device.
enum class Engine : std::uint8_t { host, emulator, device };
std::string_view to_string(Engine engine);

/// One run of a compiled candidate.
struct Run {
  Sizes sizes;
  std::string data = "ordinary";  ///< a name of data_kinds()
  std::uint64_t seed = 1;
};

struct Case {
  std::string origin;  ///< in words: "attention (f16), its space", "random nest 17, random steps"
  Engine engine = Engine::host;
  int sm = 0;            ///< compute capability times ten; 0: the host
  nlohmann::json nest;   ///< as defined
  nlohmann::json steps;  ///< as trial_steps_json writes them
  std::vector<Run> runs;
};

nlohmann::json case_to_json(const Case& found);
/// Throws UserError naming what is missing.
Case case_from_json(const nlohmann::json& json);

/// What came of a case. unproved: nothing shows that its program is the nest, so it is never served; it is run all the same. refuted: its
/// program is proved to be another one. Those from `refuted` on are findings.
enum class Verdict : std::uint8_t {
  right,
  refused,
  infeasible,
  unproved,
  refuted,
  wrong,
  internal_error,
  crash,
  slow,
  stuck,
  memory
};
std::string_view to_string(Verdict verdict);
Verdict verdict_from(std::string_view name);
inline bool is_finding(Verdict verdict) { return verdict >= Verdict::refuted; }

struct Outcome {
  Verdict verdict = Verdict::right;
  std::string detail;       ///< why it was refused, or what is wrong
  double generate_s = 0;    ///< processor time from steps to code
  int runs = 0;             ///< that were compared, every element
  std::string stored = {};  ///< of a record: "same" or "other" code than stored; "" for other cases
};

nlohmann::json outcome_to_json(const Outcome& outcome);
Outcome outcome_from_json(const nlohmann::json& json);

}  // namespace nestor::soak
