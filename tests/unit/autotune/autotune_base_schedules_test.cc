// Schedules after their rules are the same whether they are made at once or from those with fewer rules.
#include "autotune/trial/base_schedules.h"

#include "autotune/space/structure/rule_steps.h"
#include "poly/algebra/all_rules.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

TEST(BaseSchedules, OfMoreRulesGoOnFromThoseOfFewer) {
  const Nest nest = samples::scores_softmax_values(samples::Mask::select);
  const std::set<std::string> usual{"online", "defer_factor", "neutral_terms", "moments"};
  BaseSchedules tried(nest);
  std::vector<Step> steps = rule_steps(tried, usual);
  ASSERT_GE(steps.size(), 2U);
  steps.push_back(parse_step("parallel(none)"));  // no rule, and ignored
  const Schedule& found = tried.base(steps);
  steps.pop_back();
  const Schedule wanted = Schedule(nest).apply_all(steps);
  EXPECT_EQ(found.str(), wanted.str());
  EXPECT_EQ(describe(found.nest()), describe(wanted.nest()));
  EXPECT_EQ(found.steps().size(), wanted.steps().size());
  EXPECT_EQ(found.composites().size(), wanted.composites().size());
  EXPECT_EQ(found.dependences().size(), wanted.dependences().size());
  BaseSchedules at_once(nest);
  EXPECT_EQ(at_once.base(steps).str(), found.str());
}

TEST(BaseSchedules, ARuleThatDoesNotApplyLeavesTheOthers) {
  BaseSchedules schedules(samples::scores_softmax_values());
  std::vector<Step> steps = rule_steps(schedules, {"online"});
  ASSERT_FALSE(steps.empty());
  const std::string before = schedules.base(steps).str();
  std::vector<Step> more = steps;
  more.push_back(parse_step("apply_rule(online, no_such_statement)"));
  EXPECT_THROW(schedules.base(more), UserError);
  EXPECT_THROW(schedules.base(more), UserError) << "a failure is not remembered as a schedule";
  EXPECT_EQ(schedules.base(steps).str(), before);
}

TEST(BaseSchedules, MatchesOfARuleAreThoseAfterTheSteps) {
  BaseSchedules schedules(samples::scores_softmax_values());
  const Rule& online = rule("online");
  EXPECT_EQ(schedules.matches(online, {}).size(), online.find(schedules.nest()).size());
  const std::vector<Step> scaled{parse_step("apply_rule(exp2_scale)")};
  EXPECT_EQ(schedules.matches(rule("exp2_scale"), {}).size(), 1U);
  EXPECT_TRUE(schedules.matches(rule("exp2_scale"), scaled).empty()) << "of other steps";
  EXPECT_EQ(&schedules.matches(online, scaled), &schedules.matches(online, scaled)) << "found once";
}

}  // namespace
}  // namespace nestor
