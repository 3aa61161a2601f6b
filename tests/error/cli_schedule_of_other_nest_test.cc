// A schedule file that was made for another nest, or holds no schedule.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliScheduleOfOtherNest, IsRefusedByShowAndVerify) {
  const TemporaryFolder folder;
  const std::string path = folder.file("softmax.json");
  ASSERT_EQ(run_nestor({"explore", "softmax"}, "save " + path + "\n").code, 0);
  for (const char* command : {"show", "verify"}) {
    const Outcome outcome = run_nestor({command, "layernorm", "--steps", path});
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_THAT(outcome.err, HasSubstr(path)) << command;
    EXPECT_THAT(outcome.err, HasSubstr("nest")) << command;
  }
}

TEST(CliScheduleOfOtherNest, BrokenJsonIsNamed) {
  const TemporaryFolder folder;
  write_whole(folder.file("broken.json"), "{\"nest\": ");
  const Outcome outcome = run_nestor({"show", "layernorm", "--steps", folder.file("broken.json")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("is not valid JSON"));
}

TEST(CliScheduleOfOtherNest, ABadLineIsNamedByItsNumber) {
  const Outcome outcome = run_nestor({"show", "layernorm", "--steps", "-"}, "# a comment\n\nparallel(no_such_loop)\n");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("standard input, line 3"));
  EXPECT_THAT(outcome.err, HasSubstr("no_such_loop"));
}

}  // namespace
}  // namespace nestor::test
