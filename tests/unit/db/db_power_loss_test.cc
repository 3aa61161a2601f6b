// Power that fails at any write, and a disk that is full at any byte: no corruption, and no acknowledged row is lost.
#include "db/database.h"
#include "support/error.h"
#include "support/sqlite/power_cut.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

namespace nestor {
namespace {

using namespace test;
using ::testing::IsEmpty;

constexpr int kTrials = 12;

TrialRecord numbered(int number) {
  TrialRecord trial = ok_trial(1 + number, "code " + std::to_string(number % 5));
  trial.reason = std::to_string(number);
  // Some rows take several pages.
  trial.report = R"({"text":")" + std::string(number % 4 == 0 ? 9000 : 10, 'x') + R"("})";
  return trial;
}

std::set<std::string> stored(const Database& database) {
  std::set<std::string> reasons;
  for (const TrialRecord& trial : database.trials(device(), problem({{"n", 4}}))) reasons.insert(trial.reason);
  return reasons;
}

/// Adds rows and upkeep until something fails; the rows that were acknowledged. An older one's pin moves pages that were written before.
std::set<std::string> work(const std::string& path, int first) {
  std::set<std::string> acknowledged;
  try {
    Database database = Database::open(path);
    for (int k = first; k < first + kTrials; ++k) {
      const std::int64_t id = database.add_trial(device(), problem({{"n", 4}}), kNest, numbered(k));
      acknowledged.insert(std::to_string(k));
      if (k % 5 == 0) database.pin(id, true);
    }
  } catch (const std::exception&) {}
  return acknowledged;
}

int rounds() {
  const char* wanted = std::getenv("NESTOR_POWER_CUTS");
  return wanted == nullptr ? 300 : std::atoi(wanted);
}

class PowerLoss : public testing::Test {
 protected:
  PowerLoss() { ::setenv("NESTOR_KEYS", folder.file("keys").c_str(), 1); }
  ~PowerLoss() override { ::unsetenv("NESTOR_KEYS"); }
  TemporaryFolder folder;
};

TEST_F(PowerLoss, NoCorruptionAndNoAcknowledgedRowLost) {
  const std::string path = folder.file("t.db");
  std::mt19937_64 random(7);
  std::int64_t cuts = 0;
  for (int round = 0; round < rounds(); ++round) {
    PowerCut disk(random());
    std::set<std::string> acknowledged;
    // Several cuts in a row: what a start after a cut writes may be cut as well.
    for (int start = 0; start < 3; ++start) {
      disk.cut_after(1 + static_cast<std::int64_t>(random() % (start == 0 && round % 2 == 0 ? 60 : 250)));
      acknowledged.merge(work(path, start * kTrials));
      cuts += disk.dead() ? 1 : 0;
      disk.power_on();
    }
    Database database = Database::open(path);
    ASSERT_THAT(database.check(), IsEmpty()) << "round " << round;
    const std::set<std::string> there = stored(database);
    EXPECT_TRUE(std::includes(there.begin(), there.end(), acknowledged.begin(), acknowledged.end())) << "round " << round;
  }
  EXPECT_GT(cuts, rounds()) << "most starts are cut";
  RecordProperty("cuts", static_cast<int>(cuts));
}

TEST_F(PowerLoss, TheDiskForgetsWhatWasNotSynced) {
  PowerCut disk(1);
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(folder.file("plain.db").c_str(), &database), SQLITE_OK);
  const auto run = [&](const char* sql) { return sqlite3_exec(database, sql, nullptr, nullptr, nullptr); };
  // The disk of this test is one on which an unsafe program loses rows.
  ASSERT_EQ(run("PRAGMA journal_mode = WAL; CREATE TABLE t (x); PRAGMA synchronous = OFF"), SQLITE_OK);
  for (int k = 0; k < 20; ++k) ASSERT_EQ(run("INSERT INTO t VALUES (zeroblob(3000))"), SQLITE_OK);
  disk.cut_after(1);
  run("INSERT INTO t VALUES (1)");
  sqlite3_close(database);
  disk.power_on();
  ASSERT_EQ(sqlite3_open(folder.file("plain.db").c_str(), &database), SQLITE_OK);
  sqlite3_stmt* count = nullptr;
  if (sqlite3_prepare_v2(database, "SELECT count(*) FROM t", -1, &count, nullptr) == SQLITE_OK &&
      sqlite3_step(count) == SQLITE_ROW) {
    EXPECT_LT(sqlite3_column_int(count, 0), 20);
  }
  sqlite3_finalize(count);
  sqlite3_close(database);
}

TEST_F(PowerLoss, AFullDiskIsAMessageAndWhatWasStoredStays) {
  const std::string path = folder.file("t.db");
  std::int64_t refused = 0;
  for (std::int64_t bytes = 0; bytes < 300'000; bytes += 3001) {
    PowerCut disk(static_cast<std::uint64_t>(bytes));
    disk.disk_space(bytes);
    std::set<std::string> acknowledged;
    std::string message;
    try {
      Database database = Database::open(path);
      for (int k = 0; k < kTrials; ++k) {
        database.add_trial(device(), problem({{"n", 4}}), kNest, numbered(k));
        acknowledged.insert(std::to_string(k));
      }
    } catch (const UserError& error) {
      message = error.what();
      ++refused;
    }
    EXPECT_TRUE(message.empty() || message.find("full") != std::string::npos) << message;
    // Somebody makes room.
    disk.disk_space(-1);
    const Database database = Database::open(path);
    EXPECT_THAT(database.check(), IsEmpty());
    const std::set<std::string> there = stored(database);
    EXPECT_TRUE(std::includes(there.begin(), there.end(), acknowledged.begin(), acknowledged.end())) << bytes << " bytes";
    EXPECT_LE(there.size(), acknowledged.size() + 1) << "only the row that failed may be there all the same";
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace nestor
