// An operator that does not exist: the message lists those that do.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliUnknownOperator, EveryCommandListsTheOperators) {
  for (const char* command : {"tune", "query", "show", "explore", "bench"}) {
    const Outcome outcome = run_nestor({command, "layernrom"});
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_THAT(outcome.err, HasSubstr("there is no operator 'layernrom'")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("layernorm")) << command;
  }
}

TEST(CliUnknownOperator, AMissingFileIsNamed) {
  const Outcome outcome = run_nestor({"show", "no/such.nest.json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no/such.nest.json"));
}

TEST(CliUnknownOperator, JsonModeAnswersInJson) {
  const Outcome outcome = run_nestor({"--json", "query", "layernrom"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("\"kind\": \"user\""));
}

}  // namespace
}  // namespace nestor::test
