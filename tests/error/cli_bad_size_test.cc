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
  for (const char* value : {"12x", "1.5", "1e-3", "1e30", "k", "", "99999999999999999999", "9223372036854775807k"}) {
    const Outcome outcome = run_nestor({"show", "layernorm", "--sizes", std::string("rows=") + value});
    EXPECT_EQ(outcome.code, 1) << value;
    EXPECT_THAT(outcome.err, HasSubstr("is not an integer")) << value;
  }
}

TEST(CliBadSize, PowersAndThousandsAreNumbers) {
  for (const auto& [text, value] :
       {std::pair("1e3", "1000"), std::pair("4k", "4096"), std::pair("2.5e3", "2500"), std::pair("1M", "1048576")}) {
    const Outcome outcome = run_nestor({"query", "layernorm", "--rows", text, "--db", "/nonexistent/none.db"});
    EXPECT_EQ(outcome.code, 1);  // there is no such database; the size was read
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("integer"))) << text;
    const Outcome shown = run_nestor({"explore", "layernorm", "--target", "host", "--rows", text});
    EXPECT_THAT(shown.out, HasSubstr(std::string("rows=") + value)) << text;
  }
}

TEST(CliBadSize, ANameIsNeeded) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--sizes", "4096"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("write name=value"));
}

}  // namespace
}  // namespace nestor::test
