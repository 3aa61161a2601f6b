// Merging shares in any order, any number of times, gives the same records; backups are whole.
#include "db/database.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace nestor {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;

std::string exported(const Database& database) {
  std::ostringstream out;
  database.export_records(out);
  return out.str();
}

class Merging : public testing::Test {
 protected:
  // Three shares that overlap: one was checked later, one has a failed check and a pin, one comes from a file of lines.
  Merging() {
    Database first = Database::open(folder.file("1.db")), second = Database::open(folder.file("2.db"));
    for (int k = 1; k <= 4; ++k) add(first, k, kCodegenRevisions.host - 1);
    for (int k = 3; k <= 6; ++k) add(second, k, kCodegenRevisions.host);
    second.store_check(2, {TrialStatus::wrong, "error 0.5 at y[0]"});
    second.pin(3, true);
    first.add_trial(device(), problem({{"n", 1}}), kNest, failed_trial(TrialStatus::crash, "it fell"));
    Database third = Database::open(folder.file("3.db"));
    add(third, 4, kCodegenRevisions.host);
    add(third, 7, kCodegenRevisions.host);
    third.export_file(folder.file("3.jsonl"));
  }

  static void add(Database& database, int k, int checked) {
    TrialRecord trial = ok_trial(0.5 * k, "code " + std::to_string(k));
    trial.checked = checked;
    database.add_trial(device(), problem({{"n", k}}), kNest, trial);
  }
  std::string merged(const std::vector<std::string>& files, const std::string& name) const {
    Database database = Database::open(folder.file(name));
    for (const std::string& file : files) database.merge_file(folder.file(file));
    EXPECT_THAT(database.check(), IsEmpty());
    return exported(database);
  }

  TemporaryFolder folder;
};

TEST_F(Merging, AnyOrderAndAnyNumberOfTimesGiveTheSameBytes) {
  std::vector<std::string> files{"1.db", "2.db", "3.jsonl"};
  const std::string all = merged(files, "all.db");
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 8);
  EXPECT_THAT(all, HasSubstr("error 0.5 at y[0]"));
  int order = 0;
  while (std::next_permutation(files.begin(), files.end())) {
    EXPECT_EQ(merged(files, fmt::format("order{}.db", ++order)), all);
  }
  std::vector<std::string> twice = files;
  twice.insert(twice.end(), files.rbegin(), files.rend());
  EXPECT_EQ(merged(twice, "twice.db"), all);
  EXPECT_EQ(merged({"all.db", "2.db"}, "again.db"), all);
}

// A signature is in no seal: damage to it costs its own record alone.
TEST_F(Merging, AnAlteredSignatureCostsItsRecordAlone) {
  SQLite::Database(folder.file("1.db"), SQLite::OPEN_READWRITE)
      .exec("UPDATE trial SET signature = replace(replace(signature, '0', 'x'), 'x', '1') WHERE id = 2");
  std::vector<std::string> warnings;
  const DatabaseOptions told{.warn = [&](const std::string& text) { warnings.push_back(text); }};
  Database all = Database::open(folder.file("all.db"), told);
  EXPECT_EQ(all.merge_file(folder.file("1.db")).added, 4);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("1.db: trial 2: the record's signature is not one of the key"));
  // What is exported can be imported.
  Database first = Database::open(folder.file("1.db"), told);
  first.export_file(folder.file("1.jsonl"));
  EXPECT_EQ(warnings.size(), 2u);
  EXPECT_EQ(Database::open(folder.file("again.db")).import_file(folder.file("1.jsonl")).added, 4);
}

TEST_F(Merging, ABackupReplacesTheFileThatALinkNames) {
  std::filesystem::create_symlink(folder.file("copy.db"), folder.file("link.db"));
  std::ofstream(folder.file("copy.db")) << "old";
  Database::open(folder.file("1.db")).backup(folder.file("link.db"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link.db")));
  EXPECT_EQ(Database::open(folder.file("copy.db")).summary().size(), 4u);
}

TEST_F(Merging, ADatabaseMergedIntoItselfStays) {
  Database database = Database::open(folder.file("1.db"));
  const std::string before = exported(database);
  EXPECT_EQ(database.merge_file(folder.file("1.db")).added, 0);
  EXPECT_EQ(exported(database), before);
}

TEST_F(Merging, WhatIsNoFileOfRecordsIsRefused) {
  Database database = Database::open(folder.file("1.db"));
  std::ofstream(folder.file("text.jsonl")) << "hello";
  EXPECT_THAT(message_of([&] { database.merge_file(folder.file("text.jsonl")); }), HasSubstr("line 1"));
  EXPECT_THAT(message_of([&] { database.merge_file(folder.file("none.jsonl")); }), HasSubstr("cannot read"));
}

TEST_F(Merging, ABackupIsTheWholeFileAndTakesThePlaceOfAnOlderOne) {
  Database database = Database::open(folder.file("1.db"));
  std::ofstream(folder.file("copy.db")) << "an older copy";
  database.backup(folder.file("copy.db"));
  const Database copy = Database::open(folder.file("copy.db"), {.read_only = true});
  EXPECT_EQ(exported(copy), exported(database));
  EXPECT_THAT(copy.check(), IsEmpty());
  EXPECT_THAT(message_of([&] { database.backup(folder.file("1.db")); }), HasSubstr("is the database itself"));
  EXPECT_THAT(message_of([&] { database.backup(folder.file("no_such/copy.db")); }), testing::Not(IsEmpty()));
  EXPECT_THAT(message_of([&] { database.backup("/dev/full"); }), HasSubstr("no place for a copy"));
}

}  // namespace
}  // namespace nestor
