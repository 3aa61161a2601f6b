// A group: some candidates of one problem, each in a process of its own. Groups are processes, too: the space and the reference values
// are made once, and candidates inherit them.
#pragma once

#include "soak/case.h"
#include "soak/source.h"
#include "soak/try_case.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace nestor::soak {

struct Limits {
  double generate_s = 10;                       ///< processor time from steps to code
  double run_s = 60;                            ///< processor time of all runs of one candidate
  std::int64_t memory = std::int64_t{4} << 30;  ///< bytes that a candidate may add to what it inherits
};

struct GroupSpec {
  std::uint64_t seed = 1;
  std::size_t source = 0;
  Engine engine = Engine::host;
  int sm = 0;
  int candidates = 16;
  bool special = true;  ///< also inputs with infinities and NaN
};

/// What a group tells of one candidate.
struct Report {
  std::string source;
  Outcome outcome;
  nlohmann::json found;  ///< the case, for findings; null for others
};

nlohmann::json report_to_json(const Report& report);
Report report_from_json(const nlohmann::json& json);

/// Draws and tries; `tell` is called once a candidate. Throws UserError where the problem itself is refused.
void run_group(const GroupSpec& spec, const Source& source, const Limits& limits, const TryOptions& options,
               const std::function<void(const Report&)>& tell);

/// What became of `body` in a process of its own, within the limits: it calls `generated` when only the limit of running is left to keep.
/// A body that returns is right.
Outcome apart(const Limits& limits, const std::function<void(const std::function<void()>& generated)>& body);

/// Tries one case in a process of its own.
Outcome try_apart(const Case& tried, const Limits& limits, const TryOptions& options);

}  // namespace nestor::soak
