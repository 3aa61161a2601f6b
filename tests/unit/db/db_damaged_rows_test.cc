// One damaged bit in a row that many trials share does not cost them: who stores such a row again mends it.
#include "db/database.h"
#include "unit/db/db_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>

#include <sstream>

namespace nestor {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;

const Sizes kSizes{{"n", 64}};

/// Damage to each column of a shared row that says something.
const std::vector<std::string> kDamage{
    "UPDATE device SET arch = 'testcpv'",
    "UPDATE device SET units = 3",
    "UPDATE device SET kind = 'hort'",
    "UPDATE device SET key = 'host/testcpv/2'",
    R"(UPDATE nest SET json = '{"op":"scalf"}')",
    "UPDATE nest SET seal = 'f' || substr(seal, 2) WHERE seal NOT LIKE 'f%'; UPDATE nest SET seal = '0' || substr(seal, 2)",
    "UPDATE problem_size SET value = 65",
    "UPDATE problem_size SET name = 'm'",
    "UPDATE kernel SET code = x'00'",
    "UPDATE kernel SET recipe = recipe || ' '",
    "UPDATE kernel SET valid = '[1]'",
    "UPDATE certificate SET text = x'00'",
};

class DamagedRows : public testing::Test {
 protected:
  DamagedRows() {
    warnings = [](const std::string&) {};
  }
  Database open() { return Database::open(path, {.warn = warnings}); }
  static TrialRecord trial(double median_ms = 1) {
    TrialRecord made = ok_trial(median_ms, "code");
    made.certificate.text = R"({"blocks":["two threads never touch one element"]})";
    return made;
  }
  /// A sound file with one trial; what it exports.
  std::string stored() {
    for (const char* side : {"", "-wal", "-shm"}) std::filesystem::remove(path + side);
    Database database = open();
    database.add_trial(device(), problem(kSizes), kNest, trial());
    std::ostringstream out;
    database.export_records(out);
    return out.str();
  }
  void damage(const std::string& sql) const { SQLite::Database(path, SQLite::OPEN_READWRITE).exec(sql); }

  TemporaryFolder folder;
  std::string path = folder.file("t.db");
  std::function<void(const std::string&)> warnings;
};

TEST_F(DamagedRows, ANewTrialIsServedWhateverWasDamagedBefore) {
  for (const std::string& sql : kDamage) {
    stored();
    damage(sql);
    Database database = open();
    ASSERT_THAT(database.check(), Not(IsEmpty())) << sql;
    const std::int64_t id = database.add_trial(device(), problem(kSizes), kNest, trial(0.5));
    EXPECT_EQ(database.trial(id)->kernel->code, "code") << sql;
    const Match match = database.query(device(), "scale", "f32", "", kSizes);
    EXPECT_EQ(match.kind, MatchKind::exact) << sql;
    EXPECT_EQ(match.trial.id, id) << sql;
    EXPECT_THAT(database.check(), IsEmpty()) << sql << ": the row serves the older trial again, too";
  }
}

TEST_F(DamagedRows, ASoundExportMendsThem) {
  for (const std::string& sql : kDamage) {
    const std::string sound = stored();
    damage(sql);
    Database database = open();
    std::istringstream in(sound);
    EXPECT_EQ(database.import_records(in).added, 0) << sql << ": it is the same trial";
    EXPECT_THAT(database.check(), IsEmpty()) << sql;
    EXPECT_EQ(database.query(device(), "scale", "f32", "", kSizes).kind, MatchKind::exact) << sql;
  }
}

TEST_F(DamagedRows, APackMendsAKernel) {
  stored();
  open().export_file(folder.file("t.jsonl"));
  damage("UPDATE kernel SET code = x'00'");
  Database database = open();
  EXPECT_EQ(database.import_file(folder.file("t.jsonl")).added, 0);
  EXPECT_EQ(database.trial(1)->kernel->code, "code");
}

TEST_F(DamagedRows, ASoundExportMendsATrialAndItsPin) {
  for (const std::string sql :
       {"UPDATE trial SET report = '[]'", "UPDATE trial SET median_ms = 0.25", "UPDATE trial SET reason = 'x'",
        "UPDATE trial SET signature = ''", "INSERT INTO pin VALUES (1, '')",
        "PRAGMA ignore_check_constraints = ON; UPDATE trial SET status = 'oj'"}) {
    const std::string sound = stored();
    damage(sql);
    Database database = open();
    std::istringstream in(sound);
    EXPECT_EQ(database.import_records(in).added, 0) << sql;
    EXPECT_THAT(database.check(), IsEmpty()) << sql;
    EXPECT_EQ(database.query(device(), "scale", "f32", "", kSizes).trial.median_ms, 1) << sql;
  }
}

TEST_F(DamagedRows, ADamagedCertificateLeavesItsDigest) {
  stored();
  damage("UPDATE certificate SET text = x'00'");
  const Database database = open();
  const TrialRecord read = database.trial(1).value();
  EXPECT_EQ(read.certificate.digest.size(), 64u);
  EXPECT_EQ(read.certificate.text, "");
  EXPECT_THAT(database.check(), testing::Contains(HasSubstr("certificate")));
}

TEST_F(DamagedRows, ATrialWithoutWhatItBelongsToIsDamaged) {
  for (const std::string table : {"device", "problem", "nest"}) {
    stored();
    damage("PRAGMA foreign_keys = OFF; DELETE FROM " + table);
    std::vector<std::string> warned;
    warnings = [&](const std::string& text) { warned.push_back(text); };
    Database database = open();
    EXPECT_THAT(message_of([&] { database.trial(1); }), HasSubstr("trial 1 is damaged: its " + table + " is missing"));
    EXPECT_EQ(database.damaged("", "", ""), 1) << table;
    EXPECT_THAT(database.to_check(false), testing::ElementsAre(1)) << table;
    EXPECT_THAT(database.summary(), IsEmpty()) << table;
    std::ostringstream out;
    database.export_records(out);
    EXPECT_EQ(out.str(), "") << table;
    EXPECT_THAT(warned, testing::Contains(HasSubstr("lost what they belong to"))) << table;
    EXPECT_THAT(warned, testing::Contains(HasSubstr("trial 1 is skipped"))) << table;
  }
}

TEST_F(DamagedRows, NothingIsStoredInAFileThatWasRemoved) {
  stored();
  Database database = open();
  std::filesystem::rename(path, path + ".old");
  EXPECT_THAT(message_of([&] { database.add_trial(device(), problem(kSizes), kNest, trial(0.5)); }),
              HasSubstr("was removed, renamed or replaced while it was in use"));
  std::filesystem::rename(path + ".old", path);
  EXPECT_EQ(database.add_trial(device(), problem(kSizes), kNest, trial(0.5)), 2);
}

TEST_F(DamagedRows, APathThatLooksLikeAUriIsAPath) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.file(""));
  const std::string name = "file:t.db?mode=memory";
  Database::open(name, {.warn = warnings}).add_trial(device(), problem(kSizes), kNest, trial());
  EXPECT_TRUE(std::filesystem::exists(folder.file(name)));
  EXPECT_EQ(Database::open(name, {.read_only = true, .warn = warnings}).trial(1)->kernel->code, "code");
  Database::open(name, {.warn = warnings}).backup("file:copy.db");
  EXPECT_TRUE(std::filesystem::exists(folder.file("file:copy.db")));
  std::filesystem::current_path(before);
}

TEST_F(DamagedRows, WhatACheckFoundIsNotStoredOfADamagedRecord) {
  stored();
  damage("UPDATE trial SET median_ms = 0.25");
  Database database = open();
  EXPECT_THAT(message_of([&] { database.store_check(1, {TrialStatus::wrong, "error 0.5 at y[0]"}); }), HasSubstr("is damaged"));
  EXPECT_THAT(database.with_status(TrialStatus::wrong), IsEmpty());
}

TEST_F(DamagedRows, WarningsOnATerminalHaveNoEscapesOfOthers) {
  stored();
  damage("PRAGMA ignore_check_constraints = ON; UPDATE trial SET status = char(27) || '[31mok'");
  testing::internal::CaptureStderr();
  std::ostringstream out;
  Database::open(path).export_records(out);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("\\x1b[31mok"));
  EXPECT_THAT(told, Not(HasSubstr("\x1b")));
}

// The details of devices are compared before any seal is: they may hold anything.
TEST_F(DamagedRows, DetailsNestedAHundredThousandDeepAreAnotherDevice) {
  stored();
  SQLite::Database raw(path, SQLite::OPEN_READWRITE);
  SQLite::Statement deep(raw, "UPDATE device SET details = ?");
  deep.bind(1, std::string(100'000, '[') + std::string(100'000, ']'));
  deep.exec();
  const Database database = open();
  EXPECT_EQ(database.query(device(), "scale", "f32", "", kSizes).kind, MatchKind::none);
  EXPECT_THAT(database.check(), Not(IsEmpty()));
  std::ostringstream out;
  database.export_records(out, Database::Exported::winners);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace nestor
