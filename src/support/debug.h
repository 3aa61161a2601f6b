// Debug output: one environment variable, NESTOR_DEBUG=trials,timing,..., switches it on; docs/debugging.md lists the switches.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace nestor {

/// All switches, for documentation and messages. `trials`: each measured candidate. `timing`: how long each stage of a
/// compile took. `tiles`: tile programs. `plans`: a GPU kernel's plan after each pass. `ptx`: emitted PTX.
enum class DebugSwitch { trials, timing, tiles, plans, ptx };

/// Whether NESTOR_DEBUG names the switch (or "all"). The variable is read once.
bool debug_enabled(DebugSwitch which);

/// Writes "[nestor trials] text" to stderr when the switch is on.
void debug_log(DebugSwitch which, std::string_view text);

/// Switches named in a list that do not exist, for a warning at start-up.
std::string unknown_debug_switches(std::string_view list);

/// Logs under `timing` how long its scope took.
class DebugTimer {
 public:
  explicit DebugTimer(std::string what);
  ~DebugTimer();
  DebugTimer(const DebugTimer&) = delete;
  DebugTimer& operator=(const DebugTimer&) = delete;

 private:
  std::string what_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace nestor
