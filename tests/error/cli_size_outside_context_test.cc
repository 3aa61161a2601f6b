// Sizes that are positive but outside the operator's context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "integration/run_nestor.h"

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliSizeOutsideContext, TheConditionIsNamed) {
  // A causal mask needs as many keys as queries, at least.
  const Outcome outcome = run_nestor({"show", "attention", "--variant", "causal.f32", "--queries", "100", "--keys", "50"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("keys"));
  EXPECT_THAT(outcome.err, HasSubstr("queries"));
}

TEST(CliSizeOutsideContext, ASizeBelowItsMinimumIsNamed) {
  const Outcome outcome = run_nestor({"show", "seidel2d", "--width", "2"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("width"));
  EXPECT_THAT(outcome.err, HasSubstr("3"));
}

}  // namespace
}  // namespace nestor::test
