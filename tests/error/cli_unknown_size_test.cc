// A size name that the operator does not have: the message lists its sizes.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliUnknownSize, AsAnOption) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--height", "64"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("layernorm has no size 'height'"));
  EXPECT_THAT(outcome.err, HasSubstr("rows"));
  EXPECT_THAT(outcome.err, HasSubstr("width"));
}

TEST(CliUnknownSize, InTheListOfSizes) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--sizes", "rows=4,height=64"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("layernorm has no size 'height'"));
}

TEST(CliUnknownSize, AnOptionWithoutValueIsExplained) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--verbose"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--verbose is no option of 'nestor show'"));
}

}  // namespace
}  // namespace nestor::test
