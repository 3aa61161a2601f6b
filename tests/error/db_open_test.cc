// Files that cannot be used as a tuning database, and what is said about each.
#include "db/database.h"
#include "db/file/file_checks.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

namespace nestor {
namespace {

using namespace test;
using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class OpenError : public testing::Test {
 protected:
  std::string open_error(const DatabaseOptions& options = {}) {
    return message_of([&] { Database::open(path, options); });
  }
  void make_database(int trials = 1) {
    Database database = Database::open(path);
    for (int k = 1; k <= trials; ++k)
      database.add_trial(device(), problem({{"n", k}}), kNest, ok_trial(k, "code " + std::to_string(k)));
  }
  void change(const char* sql) { SQLite::Database(path, SQLite::OPEN_READWRITE).exec(sql); }

  TemporaryFolder folder;
  std::string path = folder.file("t.db");
};

TEST_F(OpenError, NewerSchemaVersion) {
  make_database();
  change("UPDATE meta SET value = '99' WHERE key = 'schema_version'");
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr(path), HasSubstr("schema version 99"), HasSubstr("up to 6"), HasSubstr("newer Nestor")));
}

TEST_F(OpenError, NotASqliteFile) {
  std::ofstream(path) << std::string(5000, 'x');
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("not a tuning database")));
  EXPECT_THAT(open_error({.read_only = true}), HasSubstr("not a tuning database"));
}

TEST_F(OpenError, DevicesAndPipes) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  for (const bool read_only : {false, true}) {
    EXPECT_THAT(open_error({.read_only = read_only}), AllOf(HasSubstr(path), HasSubstr("is a device, a pipe or a socket")));
    EXPECT_THAT(message_of([&] { Database::open("/dev/null", {.read_only = read_only}); }), HasSubstr("/dev/null is a device"));
  }
}

TEST_F(OpenError, AnotherProgramsDatabase) {
  SQLite::Database(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE bookmarks (url TEXT)");
  EXPECT_THAT(open_error(), HasSubstr("not a tuning database of Nestor"));
}

TEST_F(OpenError, CorruptedFile) {
  make_database(200);
  const auto size = fs::file_size(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::uintmax_t at = 4096; at < size; at += 512) {
    file.seekp(static_cast<std::streamoff>(at));
    file << std::string(300, '\x5a');
  }
  file.close();
  const std::string message = message_of([&] {
    Database database = Database::open(path);
    for (int k = 1; k <= 200; ++k) database.query(device(), "scale", "f32", "", {{"n", k}});
    database.export_records(std::cout);
  });
  EXPECT_THAT(message, AllOf(HasSubstr(path), HasSubstr("damaged")));
}

TEST_F(OpenError, TruncatedFile) {
  make_database(200);
  fs::resize_file(path, fs::file_size(path) / 2);
  const std::string message = message_of([&] {
    Database database = Database::open(path);
    for (int k = 1; k <= 200; ++k) database.add_trial(device(), problem({{"n", k}}), kNest, ok_trial(k, "again"));
  });
  EXPECT_THAT(message, HasSubstr("damaged"));
}

TEST_F(OpenError, CheckListsDamageInsteadOfThrowing) {
  make_database(200);
  Database database = Database::open(path);
  change("PRAGMA foreign_keys = OFF; DELETE FROM device");
  ASSERT_FALSE(database.check().empty());
  EXPECT_THAT(database.check()[0], HasSubstr("missing row of device"));
}

TEST_F(OpenError, ReadOnlyFile) {
  make_database();
  fs::permissions(path, fs::perms::owner_read | fs::perms::group_read | fs::perms::others_read);
  fs::permissions(folder.path(), fs::perms::all);
  const Unprivileged nobody;
  EXPECT_THAT(open_error(), AllOf(HasSubstr(path), HasSubstr("is read-only")));
}

TEST_F(OpenError, ReadOnlyFolder) {
  make_database();
  fs::permissions(path, fs::perms::all);
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                                     fs::perms::others_exec);
  const Unprivileged nobody;
  if (::access(folder.path().c_str(), W_OK) == 0 && geteuid() == getuid()) GTEST_SKIP() << "this user owns the folder";
  EXPECT_THAT(open_error(), AllOf(HasSubstr("folder"), HasSubstr("read-only")));
  // Looking up needs no right to write. The record is signed by another user.
  const Database database = Database::open(path, {.read_only = true, .allow_unsigned = true});
  EXPECT_EQ(database.query(device(), "scale", "f32", "", {{"n", 1}}).kind, MatchKind::exact);
}

TEST_F(OpenError, ALeftOverLogInAReadOnlyFolderSaysWhatToDo) {
  {
    Database database = Database::open(path);
    database.add_trial(device(), problem({{"n", 1}}), kNest, ok_trial(1, "code"));
    fs::copy_file(path, folder.file("left.db"));
    fs::copy_file(path + "-wal", folder.file("left.db-wal"));
  }
  const std::string left = folder.file("left.db");
  ASSERT_GT(fs::file_size(left + "-wal"), 0u);
  for (const std::string& file : {left, left + "-wal"})
    fs::permissions(file, fs::perms::owner_all | fs::perms::group_read | fs::perms::others_read);
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                                     fs::perms::others_exec);
  const Unprivileged nobody;
  if (::access(folder.path().c_str(), W_OK) == 0 && geteuid() == getuid()) GTEST_SKIP() << "this user owns the folder";
  EXPECT_THAT(message_of([&] { Database::open(left, {.read_only = true}); }),
              AllOf(HasSubstr("-wal"), HasSubstr("nestor db check")));
}

TEST_F(OpenError, AWriterThatHoldsTheFileIsWaitedFor) {
  make_database();
  SQLite::Database other(path, SQLite::OPEN_READWRITE);
  std::vector<std::string> warnings;
  Database database = Database::open(
      path, {.busy_timeout_ms = 10, .patience_s = 60, .warn = [&](const std::string& text) { warnings.push_back(text); }});
  other.exec("BEGIN IMMEDIATE");
  std::thread holder([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    other.exec("COMMIT");
  });
  EXPECT_GT(database.add_trial(device(), problem({{"n", 3}}), kNest, ok_trial(1, "code")), 0);
  holder.join();
  EXPECT_THAT(warnings, testing::ElementsAre(HasSubstr("is held by another process: waiting for it")));
  Database hasty = Database::open(path, {.busy_timeout_ms = 10, .patience_s = 0, .warn = [](const std::string&) {}});
  other.exec("BEGIN IMMEDIATE");
  EXPECT_THAT(message_of([&] { hasty.add_trial(device(), problem({{"n", 4}}), kNest, ok_trial(1, "code")); }),
              HasSubstr("locked by another process"));
}

TEST_F(OpenError, WritingToADatabaseOpenedForReading) {
  make_database();
  Database database = Database::open(path, {.read_only = true});
  const std::string message = message_of([&] { database.add_trial(device(), problem({{"n", 1}}), kNest, ok_trial(1, "x")); });
  EXPECT_THAT(message, AllOf(HasSubstr(path), HasSubstr("read-only")));
}

TEST_F(OpenError, FolderThatDoesNotExist) {
  path = folder.file("no/such/t.db");
  EXPECT_THAT(open_error(), AllOf(HasSubstr("folder"), HasSubstr("does not exist")));
  EXPECT_FALSE(fs::exists(folder.file("no")));
}

TEST_F(OpenError, NothingThereToRead) {
  EXPECT_THAT(open_error({.read_only = true}), HasSubstr("there is no tuning database at " + path));
}

TEST_F(OpenError, AFolderInsteadOfAFile) {
  path = folder.path().string();
  EXPECT_THAT(open_error(), HasSubstr("is a folder"));
}

TEST_F(OpenError, AnEmptyPath) {
  path.clear();
  EXPECT_THAT(open_error(), HasSubstr("empty"));
}

TEST_F(OpenError, AnEmptyFileIsNoDatabaseToReadFrom) {
  std::ofstream(path).close();
  EXPECT_THAT(open_error({.read_only = true}), HasSubstr("not a tuning database"));
  EXPECT_NO_THROW(Database::open(path)) << "but a place to make one";
}

TEST_F(OpenError, FullDisk) {
  make_database();
  Database database = Database::open(path, {.max_bytes = 256 * 1024});
  std::string noise;
  const std::string message = message_of([&] {
    for (int k = 0; k < 1000; ++k) {
      for (int n = 0; n < 4000; ++n) noise += static_cast<char>(std::rand());
      database.add_trial(device(), problem({{"n", 1}}), kNest, ok_trial(1, noise));
    }
  });
  EXPECT_THAT(message, AllOf(HasSubstr(path), HasSubstr("full"), HasSubstr("kept")));
  EXPECT_TRUE(database.check().empty());
  EXPECT_GT(database.summary().at(0).trials, 1) << "what fitted is there";
  Database(Database::open(path)).add_trial(device(), problem({{"n", 1}}), kNest, ok_trial(1, "room again"));
}

TEST_F(OpenError, NetworkFileSystem) {
  EXPECT_THAT(message_of([&] { check_database_file(path, false, 0x6969); }), AllOf(HasSubstr("NFS"), HasSubstr("local disk")));
  EXPECT_THAT(message_of([&] { check_database_file(path, false, static_cast<long>(0xff534d42)); }), HasSubstr("CIFS"));
  make_database();
  EXPECT_TRUE(check_database_file(path, true, 0x6969).immutable);
  EXPECT_FALSE(network_file_system(0xef53)) << "ext4";
  EXPECT_FALSE(network_file_system(file_system_type_of(path)));
}

TEST_F(OpenError, AMissingSystemDatabase) {
  EXPECT_THAT(open_error({.system_path = folder.file("none.db")}),
              HasSubstr("there is no tuning database at " + folder.file("none.db")));
}

TEST_F(OpenError, AProcessThatHoldsTheFileTooLong) {
  make_database();
  SQLite::Database other(path, SQLite::OPEN_READWRITE);
  other.exec("BEGIN IMMEDIATE");
  Database database = Database::open(path, {.busy_timeout_ms = 20, .patience_s = 0});
  const std::string message = message_of([&] { database.add_trial(device(), problem({{"n", 1}}), kNest, ok_trial(1, "x")); });
  EXPECT_THAT(message, HasSubstr("locked by another process"));
}

}  // namespace
}  // namespace nestor
