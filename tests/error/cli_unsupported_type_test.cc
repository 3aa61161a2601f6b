// An element type that the operator does not take: the message lists those it takes.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliUnsupportedType, TheVariantsAreListed) {
  const Outcome outcome = run_nestor({"tune", "layernorm", "--dtype", "f64"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("layernorm does not take 'f64'"));
  EXPECT_THAT(outcome.err, HasSubstr("f32"));
}

}  // namespace
}  // namespace nestor::test
