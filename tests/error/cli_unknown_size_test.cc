// A size name that the operator does not have: the message lists its sizes.
#include "integration/run_nestor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

TEST(CliUnknownSize, AnOptionOfOtherCommandsIsNamed) {
  const Outcome outcome = run_nestor({"query", "layernorm", "--target", "host"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, testing::ContainsRegex("layernorm has no size 'target', and --target is no option of nestor query, "
                                                  "but of .*tune.*; its sizes are"));
}

TEST(CliUnknownSize, OneSizeHasOneValue) {
  const auto refusal = [](const std::vector<std::string>& sizes) {
    std::vector<std::string> words{"show", "layernorm"};
    words.insert(words.end(), sizes.begin(), sizes.end());
    const Outcome outcome = run_nestor(words);
    return outcome.code == 1 ? outcome.err : fmt::format("exit code {}", outcome.code);
  };
  const std::string both = "size rows of layernorm is given as 64 and as 65: give it once";
  EXPECT_THAT(refusal({"--sizes", "rows=64,rows=65"}), HasSubstr(both));
  EXPECT_THAT(refusal({"--sizes", "rows=64", "--rows", "65"}), HasSubstr(both));
  EXPECT_EQ(refusal({"--rows", "64", "--rows", "64"}), "exit code 0");
  EXPECT_THAT(run_nestor({"plan", "layernorm", "--sizes", "rows=64,128,rows=256"}).err,
              HasSubstr("size rows of layernorm is given twice: write all its values behind one rows="));
  const Outcome scalar = run_nestor({"tune", "layernorm", "--set", "eps=1e-5,eps=1e-6", "--db", ":memory:"});
  EXPECT_THAT(scalar.err, HasSubstr("scalar eps of layernorm is given as 1e-05 and as 1e-06: give it once"));
}

TEST(CliUnknownSize, AStoredTrialHasItsOwn) {
  for (const auto& [option, value] :
       {std::pair("--sizes", "rows=7"), std::pair("--variant", "f32"), std::pair("--set", "eps=1")}) {
    const Outcome outcome = run_nestor({"verify", "1", option, value});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr(std::string(option) + " goes with an operator and --steps FILE: trial 1 has its own"));
  }
}

TEST(CliUnknownSize, AnOptionWithoutValueIsExplained) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--verbose"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--verbose is no option of 'nestor show'"));
}

}  // namespace
}  // namespace nestor::test
