// Contenders in processes of their own that take turns: what is measured side by side meets the same machine, minute by
// minute, and a contender that crashes or hangs takes no other with it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nestor::bench {

/// What a contender has set up in its process: one run of it, and its results in row-major order.
struct Prepared {
  std::function<void()> run;
  std::vector<std::span<const float>> results;
};

struct Contender {
  std::string name;
  std::function<Prepared()> prepare;  ///< called in the contender's own process; may throw, crash or hang
};

struct RaceOptions {
  int threads = 2;           ///< that a contender computes with
  int rounds = 15;           ///< timed runs of each, in turns, every one with cold caches
  double seconds = 30;       ///< of timed runs altogether; three rounds are run in any case
  unsigned limit_s = 240;    ///< for preparing one contender, its first run included, and for any other run
  bool realtime = false;     ///< timed runs at real-time priority, so that other work on the machine does not interrupt them
  double hopeless = 5;       ///< a contender that is this many times slower than the first one stops after three rounds
  std::size_t elements = 0;  ///< of all results of one contender
};

struct Entry {
  std::string name;
  std::string error;     ///< why there are no samples
  double prepare_s = 0;  ///< scheduling, compiling or loading, and the first run
  std::vector<double> samples_ms;
  std::vector<float> results;  ///< of the first run; empty when it has none
};

/// Prepares the contenders one after the other, then runs them in turns. Entries in the order of `contenders`.
std::vector<Entry> race(const std::vector<Contender>& contenders, const RaceOptions& options);

}  // namespace nestor::bench
