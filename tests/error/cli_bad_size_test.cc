// Sizes that are zero, negative or no integers.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliBadSize, ZeroAndNegativeAreRefused) {
  for (const char* value : {"0", "-5"}) {
    const Outcome outcome = run_nestor({"tune", "layernorm", "--rows", value});
    EXPECT_EQ(outcome.code, 1) << value;
    EXPECT_THAT(outcome.err, HasSubstr("rows")) << value;
    EXPECT_THAT(outcome.err, HasSubstr(value)) << value;
  }
}

TEST(CliBadSize, TextIsRefused) {
  for (const char* value : {"12x", "1e3", "99999999999999999999"}) {
    const Outcome outcome = run_nestor({"show", "layernorm", "--sizes", std::string("rows=") + value});
    EXPECT_EQ(outcome.code, 1) << value;
    EXPECT_THAT(outcome.err, HasSubstr("is not an integer")) << value;
  }
}

TEST(CliBadSize, ANameIsNeeded) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--sizes", "4096"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("write name=value"));
}

}  // namespace
}  // namespace nestor::test
