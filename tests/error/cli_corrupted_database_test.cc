// Files that are no database, and databases with damaged pages.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliCorruptedDatabase, AnyOtherFileIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.file("notes.db");
  write_whole(path, std::string(5000, 'x'));
  const Outcome outcome = run_nestor({"db", "summary", "--db", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(path));
  EXPECT_EQ(read_whole(path), std::string(5000, 'x'));
}

TEST(CliCorruptedDatabase, DamagedPagesAreFoundNotTrusted) {
  const TemporaryFolder folder;
  const std::string path = folder.file("damaged.db");
  ASSERT_EQ(run_nestor({"db", "prune", "--db", path}).code, 0);
  std::string bytes = read_whole(path);
  ASSERT_GT(bytes.size(), 8192U);
  bytes.replace(4096, bytes.size() - 4096, bytes.size() - 4096, '\x5a');
  write_whole(path, bytes);
  const Outcome outcome = run_nestor({"db", "check", "--db", path});
  EXPECT_TRUE(outcome.code == 1 || outcome.code == 5) << outcome.code << outcome.out << outcome.err;
}

}  // namespace
}  // namespace nestor::test
