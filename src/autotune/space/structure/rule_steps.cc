// Search-independent application of algebra rules.
#include "autotune/space/structure/rule_steps.h"

#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/group_steps.h"
#include "poly/algebra/all_rules.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/values/few_terms.h"
#include "support/error.h"
#include "support/rounding.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

namespace nestor {
namespace {

constexpr const char* kNarrowingRule = "narrow_copies";
constexpr const char* kJoiningRule = "join_rows";

/// More applications of one rule than any sensible nest needs.
constexpr int kMostApplications = 16;

/// A target that the rule's own earlier applications made, such as the parts of a split sum: splitting those again and
/// again would never end.
bool made_by_rule(const RuleMatch& match, const Nest& nest, const Nest& before) {
  return !match.target.empty() && nest.find_statement(match.target[0]) != nullptr &&
         before.find_statement(match.target[0]) == nullptr;
}

/// Appends the rule if it applies.
bool try_rule(BaseSchedules& schedules, const std::string& rule, const std::vector<std::string>& target,
              std::vector<Step>& steps) {
  std::vector<nlohmann::json> args{rule};
  args.insert(args.end(), target.begin(), target.end());
  steps.push_back(make_step("apply_rule", std::move(args)));
  try {
    schedules.after_rules(steps);
    return true;
  } catch (const UserError&) {
    steps.pop_back();
    return false;
  }
}

/// Is the match a sum of products that would be no sum any more, where there are other products of matrices? Those are for tensor cores together.
bool dissolves_product(const Rule& rule, const Nest& nest, const RuleMatch& match) {
  const Statement* sum = rule.name == kRecomputingRule ? nest.find_statement(match.target.front()) : nullptr;
  if (sum == nullptr || !multiplies_matrices(*sum)) return false;
  return std::any_of(nest.statements.begin(), nest.statements.end(),
                     [&](const Statement& other) { return multiplies_matrices(other) && !with_sum_as_value(nest, other.name); });
}

bool apply_once(const Rule& rule, BaseSchedules& schedules, const Nest& before, std::vector<Step>& steps,
                std::set<std::string>& attempted) {
  const Nest& nest = schedules.after_rules(steps).nest();
  for (const RuleMatch& match : schedules.matches(rule, steps)) {
    if (made_by_rule(match, nest, before) || dissolves_product(rule, nest, match)) continue;
    if (!attempted.insert(fmt::format("{}", fmt::join(match.target, " "))).second) continue;
    if (try_rule(schedules, rule.name, match.target, steps)) return true;
  }
  return false;
}

bool is_online(const Step& step) { return step.name == "apply_rule" && step.args.at(0) == "online"; }

struct ReducedLoop {
  int axis;
  std::int64_t extent;
  double results;  ///< of the loops that are not reduced beside it
};

/// The loop that a match of the splitting rule is about, if it is one of the structure's.
std::optional<ReducedLoop> loop_of(const RuleMatch& match, const NestStructure& structure) {
  const std::string name = match.target.at(0) + "." + match.target.at(1);
  for (const LoopGroup& loop_group : structure.loop_groups) {
    for (std::size_t k = 0; k < loop_group.loops.size(); ++k) {
      if (loop_group.loops[k] != name) continue;
      double results = 1;
      for (std::size_t other = 0; other < loop_group.loops.size(); ++other)
        results *= loop_group.reduced[other] ? 1 : static_cast<double>(loop_group.extents[other]);
      return ReducedLoop{loop_group.axes[k], loop_group.extents[k], results};
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Step> rule_steps(BaseSchedules& schedules, const std::set<std::string>& enabled) {
  std::vector<Step> steps;
  for (const Rule& rule : rules()) {
    if (!enabled.contains(rule.name)) continue;
    std::set<std::string> attempted;
    const Nest before = schedules.after_rules(steps).nest();
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
  const std::vector<Step> usual = rule_steps(schedules, all);
  for (const Step& step : usual) matching.insert(step.args.at(0).get<std::string>());
  // The nest as it is, and the simpler one with fewer temporaries.
  std::vector<std::vector<Step>> forms{{}};
  if (forms_with_fewer_tensors(schedules.nest()).size() > 1) forms.push_back({make_step("apply_rule", {"simplify"})});
  const auto matches = [&](const Rule& rule) {
    return std::any_of(forms.begin(), forms.end(),
                       [&](const std::vector<Step>& form) { return !schedules.matches(rule, form).empty(); });
  };
  for (const Rule& rule : rules()) {
    // Disabled ones, and those that another rule has made needless: without it they are what is left. What weights of a softmax are is known
    // after the usual rules.
    if (!matching.contains(rule.name) && rule.name != kMixedPartsRule && matches(rule)) matching.insert(rule.name);
  }
  // Scores that no mask hides any more may have other rules, and so may operands that are masked.
  for (const char* name : {kMaskRule, kMaskedRule}) {
    if (!matching.contains(name)) continue;
    std::set<std::string> seen = all;
    seen.insert(name);
    if (name == kMaskedRule) seen.insert(kRoundingRule);
    for (const Step& step : rule_steps(schedules, seen)) matching.insert(step.args.at(0).get<std::string>());
  }
  const Nest& usual_nest = schedules.after_rules(usual).nest();
  // Inner sums become operands of f32.
  std::set<std::string> nested = all;
  for (const char* name : {kOperandRule, kChainRule}) {
    if (matching.contains(name)) nested.insert(name);
  }
  const Nest& nested_nest = nested == all ? usual_nest : schedules.after_rules(rule_steps(schedules, nested)).nest();
  for (const char* name : {kAligningRule, kSeparatingRule, kPartsRule, kMixedPartsRule, kSkippingRule, kBlocksRule}) {
    const bool found = !rule(name).find(usual_nest).empty() ||
                       (name == std::string_view(kMixedPartsRule) && !rule(name).find(nested_nest).empty());
    if (found) matching.insert(name);
  }
  // Few sums of which some are reduced across are read by what mixes them alone, once the others are made twice.
  if (matching.contains(kAcrossRule) && !matching.contains(kSeparatingRule)) {
    std::set<std::string> twice = all;
    twice.insert(kAcrossRule);
    if (!rule(kSeparatingRule).find(schedules.after_rules(rule_steps(schedules, twice)).nest()).empty())
      matching.insert(kSeparatingRule);
  }
  // Parts are of neighbouring terms.
  std::set<std::string> orders = all;
  orders.insert(kOrderingRule);
  if (!matching.contains(kMixedPartsRule) && !rule(kOrderingRule).find(usual_nest).empty() &&
      !rule(kMixedPartsRule).find(schedules.after_rules(rule_steps(schedules, orders)).nest()).empty())
    matching.insert({kOrderingRule, kMixedPartsRule});
  // Without composites, factors of products may be computed apart.
  std::vector<Step> simple = usual;
  if (std::any_of(matching.begin(), matching.end(), makes_composites)) {
    std::set<std::string> rules_left = all;
    std::erase_if(rules_left, makes_composites);
    simple = rule_steps(schedules, rules_left);
  }
  const Nest& simple_nest = schedules.after_rules(simple).nest();
  // Sums of exponentials become elementwise.
  std::set<std::string> factors = all;
  if (matching.contains(kFactoringRule)) factors.insert(kFactoringRule);
  const Nest& factored_nest = factors == all ? usual_nest : schedules.after_rules(rule_steps(schedules, factors)).nest();
  for (const char* narrowing : {kNarrowingRule, kRoundingRule}) {
    const bool factored = !rule(narrowing).find(factored_nest).empty();
    if (rule(narrowing).find(usual_nest).empty() && rule(narrowing).find(simple_nest).empty() && !factored) continue;
    if (factored) all.insert(kFactoringRule);
    // It makes products of 16-bit operands, for which there are other rules.
    all.insert(narrowing);
    const Nest narrowed = schedules.after_rules(rule_steps(schedules, all)).nest();
    matching.insert(narrowing);
    for (const Rule& rule : rules()) {
      if (is_for_products(rule.name) && !rule.find(narrowed).empty()) matching.insert(rule.name);
    }
  }
  if (matching.contains(kSkippingRule)) {
    std::set<std::string> skipping = all;
    skipping.insert(kSkippingRule);
    skipping.erase(kRepeatingRule);
    const Nest& direct = schedules.after_rules(rule_steps(schedules, skipping)).nest();
    for (const char* name : {kOrderingRule, kRepeatingRule}) {
      if (!rule(name).find(direct).empty()) matching.insert(name);
    }
  }
  for (const char* joining : {kJoiningRule, kShortRowsRule}) {
    if (!matching.contains(joining)) continue;
    std::set<std::string> joins = all;
    joins.insert(joining);
    if (!rule(kJoinedRule).find(schedules.after_rules(rule_steps(schedules, joins)).nest()).empty()) matching.insert(kJoinedRule);
  }
  std::vector<std::string> ordered;
  for (const Rule& rule : rules()) {
    if (matching.contains(rule.name)) ordered.push_back(rule.name);
  }
  return ordered;
}

std::set<int> splittable_axes(BaseSchedules& schedules, const std::vector<Step>& steps, const NestStructure& structure) {
  std::set<int> axes;
  for (const RuleMatch& match : rule(kSplittingRule).find(schedules.after_rules(steps).nest())) {
    if (const auto loop = loop_of(match, structure)) axes.insert(loop->axis);
  }
  return axes;
}

namespace {

/// From how many results on reductions along the axes are left whole: where others have few, parts are for those, and would leave blocks of
/// sums with results for all threads next to nothing to do.
double most_results_in_parts(const Nest& nest, const NestStructure& structure, const std::set<int>& axes) {
  constexpr double kFew = 64, kMany = 8192, kAll = std::numeric_limits<double>::infinity();
  double fewest = kAll;
  for (const RuleMatch& match : rule(kSplittingRule).find(nest)) {
    const auto loop = loop_of(match, structure);
    if (loop && axes.contains(loop->axis)) fewest = std::min(fewest, loop->results);
  }
  return fewest <= kFew && !multiplies(nest) ? kMany : kAll;
}

}  // namespace

std::vector<Step> split_steps(BaseSchedules& schedules, std::vector<Step> steps, const NestStructure& structure,
                              const std::set<int>& axes, std::int64_t parts, std::int64_t multiple) {
  std::set<std::string> attempted;
  const double most = most_results_in_parts(schedules.after_rules(steps).nest(), structure, axes);
  for (bool again = true; again;) {
    again = false;
    // Anew after each application: names of parts are chosen so that they are free.
    for (const RuleMatch& match : rule(kSplittingRule).find(schedules.after_rules(steps).nest())) {
      const auto loop = loop_of(match, structure);
      if (!loop || !axes.contains(loop->axis) || loop->results >= most || !attempted.insert(match.target[0]).second) continue;
      const std::int64_t size = std::max<std::int64_t>(round_up(ceil_div(loop->extent, parts), multiple), 2);
      std::vector<std::string> target = match.target;
      target.at(3) = std::to_string(size);
      again = try_rule(schedules, kSplittingRule, target, steps);
      if (again) break;
    }
  }
  return steps;
}

std::set<std::string> leads_that_may_stay_behind(const Nest& nest, const std::vector<Step>& steps) {
  std::set<std::string> leads;
  for (const Step& step : steps) {
    if (!is_online(step)) continue;
    const std::string lead = step.args.at(1).get<std::string>();
    if (nest.find_statement(lead) != nullptr && may_stay_behind(nest, lead)) leads.insert(lead);
  }
  return leads;
}

std::vector<Step> with_threshold(std::vector<Step> steps, const std::set<std::string>& leads, int doublings) {
  for (Step& step : steps) {
    if (is_online(step) && leads.contains(step.args.at(1).get<std::string>())) step.args.emplace_back(doublings);
  }
  return steps;
}

bool enabled_by_default(const std::string& rule) {
  return rule != kSplittingRule && rule != kRecomputingRule && rule != kAgainRule && rule != kAcrossRule &&
         rule != kFoldingRule && rule != "dense_terms" && !is_for_products(rule);
}

bool is_for_products(const std::string& rule) {
  return rule == kZerosRule || rule == kSkippingRule || rule == "narrow_copies" || rule == kRoundingRule ||
         rule == "gather_terms" || rule == "batch_first" || rule == "repeat_product" || rule == kJoiningRule ||
         rule == kJoinedRule || rule == kShortRowsRule || rule == kSumJoiningRule || rule == kKeepingRule ||
         rule == "split_terms" || rule == kSeparatingRule || rule == kAligningRule || rule == kGatheringRule ||
         rule == kOrderingRule || rule == kColumnsRule || rule == kExpandingRule || rule == kFactoringRule ||
         rule == kIntegerRule || rule == kMaskRule || rule == kNestingRule || rule == kOperandRule || rule == kChainRule ||
         rule == kPartsRule || rule == kMixedPartsRule || rule == kRowsRule || rule == kMaskedRule || rule == kBlocksRule;
}

bool multiplies_zeros(const std::string& rule) { return rule == kZerosRule; }

bool costs_accuracy(const std::string& rule) { return rule == "exp2_scale"; }

bool makes_composites(const std::string& rule) { return rule == "online" || rule == "moments"; }

}  // namespace nestor
