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

TEST(CliBadArguments, ADeviceThatIsNotHereIsNamed) {
  for (const char* command : {"tune", "bench"}) {
    const Outcome outcome = run_nestor({command, "layernorm", "--target", "cuda"}, "", "env NESTOR_LIBCUDA=/nonexistent");
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("there is no CUDA device here: the CUDA driver cannot be loaded"));
  }
  const std::string fake = std::string("env NESTOR_LIBCUDA=") + NESTOR_FAKE_CUDA;
  EXPECT_THAT(run_nestor({"tune", "layernorm", "--target", "cuda:5"}, "", fake).err,
              HasSubstr("no device cuda:5: this machine has cuda:0 to cuda:1"));
  EXPECT_THAT(run_nestor({"tune", "layernorm", "--target", "cuda:1", "--gpus", "2"}, "", fake).err,
              HasSubstr("no device cuda:2"));
  for (const char* target : {"tpu", "cuda:", "cuda:x", "cuda:-1", "cuda/80", "cuda:0/sm_70", "cuda/sm_91", "cuda/"}) {
    const Outcome outcome = run_nestor({"tune", "layernorm", "--target", target});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("write host, cuda, cuda:1 or cuda/sm_80"));
  }
}

TEST(CliBadArguments, ADeviceWithoutRecordsIsNamed) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_nestor({"db", "prune", "--db", folder.file("a.db")}).code, 0);
  const Outcome outcome = run_nestor({"query", "layernorm", "--device", "Q9000", "--db", folder.file("a.db")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no record is of a device 'Q9000'; the database knows none"));
}

TEST(CliBadArguments, MissingShippedRecordsAreNamed) {
  const TemporaryFolder folder;
  const Outcome outcome =
      run_nestor({"db", "import", "--shipped", "--db", folder.file("a.db")}, "", "env NESTOR_RECORDS=" + folder.file("none"));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(folder.file("none")));
  EXPECT_THAT(run_nestor({"db", "import", "some.jsonl", "--shipped"}).err, HasSubstr("give no FILE"));
}

TEST(CliBadArguments, WhatIsNoNumberAboveZeroIsNamed) {
  for (const char* text : {"abc", "-3", "0"}) {
    const Outcome time = run_nestor({"tune", "matvec", "--time", text});
    EXPECT_EQ(time.code, 1);
    EXPECT_THAT(time.err, HasSubstr(std::string("--time: '") + text + "' is not a number above 0"));
    EXPECT_THAT(run_nestor({"db", "pin", text}).err,
                HasSubstr(std::string("TRIAL: '") + text + "' is not a whole number from 1 to 9223372036854775807"));
  }
}

TEST(CliBadArguments, NumbersThat64BitsDoNotHoldAreNamed) {
  for (const char* text : {"18446744073709551616", "-1", "1e3", "7x"}) {
    const Outcome seed = run_nestor({"tune", "matvec", "--seed", text});
    EXPECT_EQ(seed.code, 1);
    EXPECT_THAT(seed.err, HasSubstr(std::string("--seed: '") + text + "' is not a whole number from 0 to 18446744073709551615"));
  }
  EXPECT_THAT(run_nestor({"db", "pin", "9223372036854775808"}).err, HasSubstr("'9223372036854775808' is not a whole number"));
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
