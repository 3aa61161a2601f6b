// Tally: what a soak has counted, as text and as JSON for bench/results.
#pragma once

#include "soak/group.h"

#include <map>
#include <string>
#include <vector>

namespace nestor::soak {

class Tally {
 public:
  void add(const Report& report);
  /// A group whose problem was refused, or that died outside of a candidate.
  void add_lost_group(const std::string& source, const Outcome& outcome, const nlohmann::json& found);

  std::int64_t candidates() const { return candidates_; }
  std::int64_t findings() const { return findings_; }
  std::string line(double elapsed_s) const;  ///< for a progress line
  std::string text(double elapsed_s) const;  ///< all of it
  nlohmann::json json() const;

 private:
  std::int64_t count(Verdict verdict) const;

  std::int64_t candidates_ = 0, findings_ = 0, runs_ = 0;
  std::map<Verdict, std::int64_t> verdicts_;
  std::map<std::string, std::map<Verdict, std::int64_t>> sources_;
  std::map<std::string, std::int64_t> reasons_;  ///< of refusals, by kind
  double longest_s_ = 0;                         ///< from steps to code
  std::string longest_;
};

/// "AMD EPYC ..., 2 threads"
std::string hardware_text();

}  // namespace nestor::soak
