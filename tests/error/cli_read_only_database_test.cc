// A database that may not be written: tuning says so before it measures anything; queries work.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliReadOnlyDatabase, TuningIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.file("locked.db");
  ASSERT_EQ(run_nestor({"db", "prune", "--db", path}).code, 0);
  std::filesystem::permissions(path, std::filesystem::perms(0444));
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0555));
  // Root may write anywhere: the program then runs as nobody.
  const std::string prefix = geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups" : "";
  if (!prefix.empty() && run_nestor({"--version"}, "", prefix).code != 0) GTEST_SKIP() << "nobody cannot run the program here";
  const Outcome outcome =
      run_nestor({"tune", "layernorm", "--rows", "4", "--width", "8", "--trials", "1", "--db", path}, "", prefix);
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(path));
}

}  // namespace
}  // namespace nestor::test
