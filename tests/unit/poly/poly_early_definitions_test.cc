// Rule early_definitions: what shares the loops of a recurrence and needs nothing of it gets loops of its own in front.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/error.h"
#include "support/nests/recurrence_nests.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

/// How the ends of a row get their values in each step.
struct EndsForm {
  std::vector<std::string> reads{"p[x]"};
  std::string written = "g[t + 1, x]";
  std::string other_end = "g[t + 1, x]";
};

/// g[t + 1, x + 1] = (g[t, x] + g[t, x + 2]) / 2 in each step, and p at both ends, as the form has it; out = g[T].
Nest stepped_row(const EndsForm& form = {}) {
  const std::string step = "0 <= t < T and ", row = "0 <= x < W";
  return NestBuilder("stepped_row", {{"T", 3}, {"W", 6}})
      .tensor("p", TensorRole::input, {"W"})
      .tensor("g", TensorRole::temporary, {"T + 1", "W"})
      .tensor("out", TensorRole::output, {"W"})
      .statement("first[t, x] : 0 <= t <= T and " + row, "g[t, x]", {"p[x]"}, read(0) * number(3))
      .statement("left[t, s, x] : s = 0 and " + step + row + " and x = 0", form.written, form.reads, read(0))
      .statement("inner[t, s, x] : s = 1 and " + step + "0 <= x < W - 2", "g[t + 1, x + 1]", {"g[t, x]", "g[t, x + 2]"},
                 (read(0) + read(1)) * number(0.5))
      .join_last()
      .statement("right[t, s, x] : s = 2 and " + step + row + " and x = W - 1 and x > 0", form.other_end, {"p[x]"},
                 read(0) * number(2))
      .join_last()
      .statement("out[x] : " + row, "out[x]", {"g[T, x]"}, read(0))
      .build();
}

std::vector<int> groups(const Nest& nest) {
  std::vector<int> found;
  for (const Statement& statement : nest.statements) found.push_back(statement.group);
  return found;
}

Nest rewritten(const Nest& nest) {
  EXPECT_EQ(rule("early_definitions").find(nest).size(), 1U);
  Nest result = rule("early_definitions").apply(nest, {}).nest;
  validate(result);
  for (const auto& [steps, columns] : {std::pair{1, 1}, {1, 3}, {4, 7}})
    EXPECT_EQ(differences(nest, result, {{"T", steps}, {"W", columns}}, 5), 0) << steps << " x " << columns;
  EXPECT_TRUE(rule("early_definitions").find(result).empty());
  return result;
}

TEST(EarlyDefinitions, BordersOfAllStepsComeFirst) {
  const Nest apart = rewritten(stepped_row());
  EXPECT_THAT(statement_names(apart), ElementsAre("first", "left", "right", "inner", "out"));
  EXPECT_THAT(groups(apart), ElementsAre(0, 1, 2, 3, 4));
}

TEST(EarlyDefinitions, WhatNeedsAStepStaysInIt) {
  const Nest apart = rewritten(stepped_row({.reads = {"g[t, x]"}}));
  EXPECT_THAT(statement_names(apart), ElementsAre("first", "right", "left", "inner", "out"));
  EXPECT_THAT(groups(apart), ElementsAre(0, 1, 2, 2, 3));
}

/// A step reads the end that the definitions in front have given before it gets its own.
TEST(EarlyDefinitions, WhatIsReadBeforeItIsWrittenStays) {
  const Nest apart = rewritten(stepped_row({.other_end = "g[t, x]"}));
  EXPECT_THAT(statement_names(apart), ElementsAre("first", "left", "inner", "right", "out"));
  EXPECT_THAT(groups(apart), ElementsAre(0, 1, 2, 2, 3));
}

/// Elements that a step writes and an end writes again have the end's value.
TEST(EarlyDefinitions, WhatIsWrittenTwiceStays) {
  const Nest apart = rewritten(stepped_row({.other_end = "g[t + 1, x - 1]"}));
  EXPECT_THAT(groups(apart), ElementsAre(0, 1, 2, 2, 3));
}

/// Sums of a step, and what a step keeps to itself, stay where they are.
TEST(EarlyDefinitions, SumsAreStartedInTheirStep) {
  for (const Nest& nest : {states(), batched_states(), corrected_matrix()})
    EXPECT_TRUE(rule("early_definitions").find(nest).empty()) << nest.op;
}

TEST(EarlyDefinitions, Refusals) {
  EXPECT_TRUE(rule("early_definitions").find(matmul()).empty());
  try {
    rule("early_definitions").apply(matmul(), {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "rule early_definitions does not apply: no statement of a recurrence's loops needs nothing of it");
  }
}

}  // namespace
}  // namespace nestor
