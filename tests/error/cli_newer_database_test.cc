// A database written by a newer nestor is refused, not damaged.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

namespace nestor::test {
namespace {

using testing::HasSubstr;

TEST(CliNewerDatabase, IsRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.file("newer.db");
  ASSERT_EQ(run_nestor({"db", "prune", "--db", path}).code, 0);
  sqlite3* file = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &file), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(file, "UPDATE meta SET value = '999' WHERE key = 'schema_version'; PRAGMA user_version = 999;", nullptr,
                         nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(file);
  const Outcome outcome = run_nestor({"query", "layernorm", "--db", path});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(path));
  EXPECT_THAT(outcome.err, HasSubstr("newer"));
}

}  // namespace
}  // namespace nestor::test
