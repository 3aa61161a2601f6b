// Rule scalars_first: single values that inputs give are defined before all loops.
#include "poly/algebra/all_rules.h"
#include "support/error.h"
#include "support/nests/dice.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/rule_forms.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

TEST(ScalarsFirst, ValuesOfInputsStandInFrontInTheirOrder) {
  const Nest nest = bounded_step(ElementType::f16, true);
  ASSERT_EQ(rule("scalars_first").find(nest).size(), 1U);
  const Nest first = rule("scalars_first").apply(nest, {}).nest;
  validate(first);
  EXPECT_THAT(statement_names(first), ElementsAre("root", "bound", "slope", "out"));
  EXPECT_EQ(differences(nest, first, {{"N", 9}}, 7), 0);
  EXPECT_TRUE(rule("scalars_first").find(first).empty());
}

TEST(ScalarsFirst, WhatASumGivesStays) {
  EXPECT_TRUE(rule("scalars_first").find(bounded_step(ElementType::f32, false, true)).empty());
  EXPECT_TRUE(rule("scalars_first").find(matmul()).empty());
  try {
    rule("scalars_first").apply(matmul(), {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "rule scalars_first does not apply: no single value of inputs stands behind a loop");
  }
}

}  // namespace
}  // namespace nestor
