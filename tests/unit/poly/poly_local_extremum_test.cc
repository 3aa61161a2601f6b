// Rule local_extremum: one softmax over several sources, each relative to its own maximum.
#include "poly/algebra/all_rules.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/two_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> online_targets(const Nest& nest) {
  std::vector<std::string> targets;
  for (const RuleMatch& match : rule("online").find(nest)) targets.push_back(match.target.front());
  return targets;
}

/// The leads whose terms become relative to them.
std::string match_of(const Sources& form) {
  const auto found = rule("local_extremum").find(softmax_over_two(form));
  return found.empty() ? "" : found.front().description.substr(22);
}

TEST(LocalExtremum, EachSourceIsAnOnlineSoftmaxOfItsOwn) {
  const Nest before = softmax_over_two({});
  ASSERT_EQ(rule("local_extremum").find(before).size(), 1U);
  EXPECT_TRUE(online_targets(before).empty()) << "neither maximum is what the terms are relative to";
  const Nest after = rule("local_extremum").apply(before, {"t"}).nest;
  validate(after);
  EXPECT_THAT(online_targets(after), UnorderedElementsAre("m", "n"));
  EXPECT_TRUE(rule("local_extremum").find(after).empty()) << "once";
  EXPECT_EQ(differences(before, after, {{"R", 4}, {"C", 5}, {"D", 3}}, 60), 0) << "with infinities and NaN";
  // What a source needs stands together, and what both need behind.
  EXPECT_LT(position_of(after, "v"), position_of(after, "n_init"));
  EXPECT_LT(position_of(after, "r"), position_of(after, "t"));
}

TEST(LocalExtremum, RowsOfOneSourceMayHaveNothingButInfinities) {
  const Sizes sizes{{"R", 4}, {"C", 5}, {"D", 3}};
  const Nest before = softmax_over_two({}), after = rule("local_extremum").apply(before, {"t"}).nest;
  samples::Memory expected = Interpreter::random_inputs(before, sizes, 1);
  for (auto& [index, value] : expected.at("z")) value = index.at(0) < 2 ? -infinity() : value;
  for (auto& [index, value] : expected.at("k")) value = index.at(0) == 1 ? -infinity() : value;
  samples::Memory actual = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  for (const auto& [index, value] : expected.at("out")) {
    EXPECT_EQ(std::isnan(value), index.at(0) == 1) << "the first row has terms of the other source alone, the second none";
    EXPECT_TRUE(same_value(actual.at("out").at(index), value)) << index.at(0);
  }
  const auto is_kept_finite = [](const Nest& nest) {
    bool found = false;
    for (const Statement& statement : nest.statements) {
      statement.value.visit([&](const ScalarExpr& node) {
        found = found || (node.op() == ScalarOp::max && node.args()[1].op() == ScalarOp::constant);
      });
    }
    return found;
  };
  EXPECT_TRUE(is_kept_finite(after));
  EXPECT_FALSE(is_kept_finite(rule("local_extremum").apply(softmax_over_two({.infinite = false}), {"t"}).nest))
      << "no row is such";
}

TEST(LocalExtremum, InfiniteFactorsOfVanishingTermsStayNan) {
  const Sizes sizes{{"R", 2}, {"C", 5}, {"D", 3}};
  const Nest before = softmax_over_two({}), after = rule("local_extremum").apply(before, {"t"}).nest;
  samples::Memory expected = Interpreter::random_inputs(before, sizes, 1);
  for (auto& [index, value] : expected.at("k")) value = index.at(0) == 1 ? -infinity() : value;
  expected.at("u").at({2}) = infinity();
  samples::Memory actual = expected;
  Interpreter(before, sizes).run(expected);
  Interpreter(after, sizes).run(actual);
  EXPECT_TRUE(std::isnan(expected.at("out").at({1}))) << "0 times infinity, although the other source has terms";
  EXPECT_TRUE(std::isnan(actual.at("out").at({1})));
  EXPECT_EQ(actual.at("out").at({0}), infinity());
}

TEST(LocalExtremum, BothMaximaAreScaledWithTheScores) {
  const Nest nest = attention_to_two(false);
  const Nest scaled = rule("exp2_scale").apply(rule("local_extremum").apply(nest, {"top"}).nest, {}).nest;
  int exponentials = 0;
  for (const Statement& statement : scaled.statements) {
    statement.value.visit([&](const ScalarExpr& node) {
      if (node.op() != ScalarOp::exp2) return;
      ++exponentials;
      EXPECT_EQ(node.args()[0].op(), ScalarOp::sub) << statement.name << " multiplies each exponent";
    });
  }
  EXPECT_EQ(exponentials, 4) << "of both sources, and of what their sums meet with";
  EXPECT_THAT(online_targets(scaled), UnorderedElementsAre("old_top", "new_top"));
  EXPECT_TRUE(rule("factor_extremum").find(rule("local_extremum").apply(nest, {"top"}).nest).empty()) << "they are kept finite";
}

TEST(LocalExtremum, WhatOthersReadStaysRelativeToAll) {
  EXPECT_EQ(match_of({}), "m, n, each to its own");
  EXPECT_EQ(match_of({.others = "u[c]"}), "n, each to its own") << "terms of another value";
  EXPECT_EQ(match_of({.weights = TensorRole::output}), "n, each to its own") << "weights are a result";
  EXPECT_EQ(match_of({.sums_again = true}), "n, each to its own") << "a sum of a sum";
  EXPECT_EQ(match_of({.reads_own = true}), "n, each to its own") << "the maximum itself is read";
  EXPECT_EQ(match_of({.meeting = ScalarOp::min}), "") << "the smaller one";
}

}  // namespace
}  // namespace nestor
