// Base schedules: nests after their algebra steps, with dependences computed once and shared by all candidates.
#pragma once

#include "poly/algebra/rules/rule.h"
#include "poly/schedule/schedule.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nestor {

/// Schedules by their leading apply_rule steps. Workers inherit what the tuner computed before forking.
class BaseSchedules {
 public:
  explicit BaseSchedules(Nest nest) : nest_(std::move(nest)) {}
  const Nest& nest() const { return nest_; }
  /// The schedule after the leading apply_rule steps of `steps`. Throws UserError when a rule does not apply.
  const Schedule& base(const std::vector<Step>& steps);
  /// The same, before anybody asks for its dependences.
  const Schedule& after_rules(const std::vector<Step>& steps);
  /// Where the rule applies then; found once. Lives as long as this does.
  const std::vector<RuleMatch>& matches(const Rule& rule, const std::vector<Step>& steps);
  /// base() and then the other steps. Throws UserError when one is illegal.
  Schedule replay(const std::vector<Step>& steps);

 private:
  static std::size_t rule_count(const std::vector<Step>& steps);
  Nest nest_;
  std::map<std::string, Schedule> known_;
  std::map<std::pair<const Schedule*, std::string>, std::vector<RuleMatch>> matches_;  ///< by rule
};

}  // namespace nestor
