// Search-independent application of algebra rules.
#include "autotune/space/rule_steps.h"

#include "autotune/space/cluster_steps.h"
#include "poly/algebra/rule.h"
#include "support/error.h"

#include <fmt/ranges.h>

namespace nestor {
namespace {

/// More applications of one rule than any sensible nest needs.
constexpr int kMostApplications = 16;

/// A target that the rule's own earlier applications made, such as the parts of a split sum: splitting those again and
/// again would never end.
bool made_by_rule(const RuleMatch& match, const Nest& nest, const Nest& before) {
  return !match.target.empty() && nest.find_statement(match.target[0]) != nullptr &&
         before.find_statement(match.target[0]) == nullptr;
}

bool apply_once(const Rule& rule, BaseSchedules& schedules, const Nest& before, std::vector<Step>& steps,
                std::set<std::string>& attempted) {
  const Nest nest = schedules.base(steps).nest();
  for (const RuleMatch& match : rule.find(nest)) {
    if (made_by_rule(match, nest, before)) continue;
    if (!attempted.insert(fmt::format("{}", fmt::join(match.target, " "))).second) continue;
    std::vector<nlohmann::json> args{rule.name};
    args.insert(args.end(), match.target.begin(), match.target.end());
    steps.push_back(make_step("apply_rule", std::move(args)));
    try {
      schedules.base(steps);
      return true;
    } catch (const UserError&) {
      steps.pop_back();
    }
  }
  return false;
}

}  // namespace

std::vector<Step> rule_steps(BaseSchedules& schedules, const std::set<std::string>& enabled) {
  std::vector<Step> steps;
  for (const Rule& rule : rules()) {
    if (!enabled.contains(rule.name)) continue;
    std::set<std::string> attempted;
    const Nest before = schedules.base(steps).nest();
    for (int k = 0; k < kMostApplications && apply_once(rule, schedules, before, steps, attempted); ++k) {}
  }
  return steps;
}

std::vector<std::string> matching_rules(BaseSchedules& schedules) {
  std::set<std::string> all;
  for (const Rule& rule : rules()) {
    if (enabled_by_default(rule.name)) all.insert(rule.name);
  }
  std::set<std::string> matching;
  for (const Step& step : rule_steps(schedules, all)) matching.insert(step.args.at(0).get<std::string>());
  for (const Rule& rule : rules()) {
    if (!all.contains(rule.name) && !rule.find(schedules.nest()).empty()) matching.insert(rule.name);
  }
  std::vector<std::string> ordered;
  for (const Rule& rule : rules()) {
    if (matching.contains(rule.name)) ordered.push_back(rule.name);
  }
  return ordered;
}

bool enabled_by_default(const std::string& rule) { return rule != "split_reduction"; }

bool makes_composites(const std::string& rule) { return rule == "online" || rule == "moments"; }

}  // namespace nestor
