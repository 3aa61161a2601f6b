// Arguments that contradict each other or do not exist.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliBadArguments, AnUnknownCommandPointsToHelp) {
  const Outcome outcome = run_nestor({"optimize", "layernorm"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--help"));
}

TEST(CliBadArguments, AnUnknownViewListsTheViews) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--as", "picture"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("'picture' is no view"));
  EXPECT_THAT(outcome.err, HasSubstr("loops"));
}

TEST(CliBadArguments, AnUnknownScalarListsTheScalars) {
  const Outcome outcome = run_nestor({"bench", "layernorm", "--set", "epsilon_=1"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("its scalars are"));
}

TEST(CliBadArguments, GpuTuningSaysWhatWorksInstead) {
  const Outcome outcome = run_nestor({"tune", "layernorm", "--target", "sm_90"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("--as ptx --target sm_90"));
}

TEST(CliBadArguments, AMissingTrialIsNamed) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_nestor({"db", "prune", "--db", folder.file("a.db")}).code, 0);
  const Outcome outcome = run_nestor({"verify", "17", "--db", folder.file("a.db")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no trial 17"));
}

}  // namespace
}  // namespace nestor::test
