// A disk that fills up while records are written.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliFullDisk, ExportSaysThatWritingFailed) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TemporaryFolder folder;
  const std::string path = folder.file("full.db");
  const Outcome tuned =
      run_nestor({"tune", "layernorm", "--rows", "4", "--width", "8", "--trials", "2", "--time", "60", "--db", path});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const Outcome outcome = run_nestor({"db", "export", "/dev/full", "--db", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("writing /dev/full failed"));
}

}  // namespace
}  // namespace nestor::test
