// Files of older schema versions become files of this one, with their records.
#include "db/database.h"
#include "db/file/schema.h"
#include "db/records/encoding.h"
#include "support/hash.h"
#include "unit/db/db_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <set>
#include <sstream>

namespace nestor {
namespace {

using namespace test;

// Version 1 as it was: no max_error.
constexpr const char* kVersion1 = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE device (id INTEGER PRIMARY KEY, key TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, arch TEXT NOT NULL, units INTEGER NOT NULL,
  details TEXT NOT NULL, UNIQUE (key, name, details));
CREATE TABLE nest (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, json TEXT NOT NULL);
CREATE TABLE problem (id INTEGER PRIMARY KEY, nest_id INTEGER NOT NULL REFERENCES nest (id), op TEXT NOT NULL, variant TEXT NOT NULL,
  sizes TEXT NOT NULL, UNIQUE (op, variant, sizes, nest_id));
CREATE TABLE problem_size (problem_id INTEGER NOT NULL REFERENCES problem (id) ON DELETE CASCADE, name TEXT NOT NULL,
  value INTEGER NOT NULL CHECK (value > 0), PRIMARY KEY (problem_id, name)) WITHOUT ROWID;
CREATE TABLE kernel (id INTEGER PRIMARY KEY, hash TEXT NOT NULL, architecture TEXT NOT NULL, valid TEXT NOT NULL, recipe TEXT NOT NULL,
  code BLOB NOT NULL, UNIQUE (hash, architecture));
CREATE TABLE trial (id INTEGER PRIMARY KEY, device_id INTEGER NOT NULL REFERENCES device (id), problem_id INTEGER NOT NULL REFERENCES problem (id),
  kernel_id INTEGER REFERENCES kernel (id),
  status TEXT NOT NULL CHECK (status IN ('ok', 'illegal', 'compile_error', 'wrong', 'crash', 'timeout', 'slow', 'infeasible')),
  median_ms REAL NOT NULL, created TEXT NOT NULL, toolchain TEXT NOT NULL, reason TEXT NOT NULL, samples BLOB NOT NULL, steps TEXT NOT NULL);
CREATE TABLE pin (trial_id INTEGER PRIMARY KEY REFERENCES trial (id) ON DELETE CASCADE);
CREATE INDEX trial_of_problem ON trial (problem_id, device_id, created);
CREATE INDEX trial_fastest ON trial (problem_id, device_id, median_ms) WHERE status = 'ok' AND kernel_id IS NOT NULL;
CREATE INDEX trial_of_kernel ON trial (kernel_id);
CREATE INDEX problem_of_nest ON problem (nest_id);
CREATE INDEX trial_of_device ON trial (device_id);
INSERT INTO meta VALUES ('schema_version', '1');
INSERT INTO device VALUES (1, 'host/testcpu/2', 'host', 'Test CPU', 'testcpu', 2, '{}');
INSERT INTO nest VALUES (1, 'd1', '{}');
INSERT INTO problem VALUES (1, 1, 'scale', 'f32', 'n=64');
INSERT INTO problem_size VALUES (1, 'n', 64);
)sql";

void build_version_1(const std::string& path) {
  SQLite::Database raw(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  raw.exec(kVersion1);
  const std::string recipe = recipe_to_json(test::recipe()).dump(), code = zstd_compress("old code"),
                    samples = doubles_to_bytes({2.0, 1.0});
  SQLite::Statement kernel(raw, "INSERT INTO kernel VALUES (1, ?, 'x86-64:test:', '[]', ?, ?)");
  kernel.bind(1, Hasher().add("old code").add(recipe).hex());
  kernel.bind(2, recipe);
  kernel.bind(3, code.data(), static_cast<int>(code.size()));
  kernel.exec();
  SQLite::Statement trial(raw, "INSERT INTO trial VALUES (7, 1, 1, 1, 'ok', 1.5, '2024-01-01T00:00:00Z', 'old', '', ?, '[]')");
  trial.bind(1, samples.data(), static_cast<int>(samples.size()));
  trial.exec();
}

// Every column of every table with its type, constraints and default, and every index.
std::set<std::string> shape_of(const std::string& path) {
  SQLite::Database raw(path, SQLite::OPEN_READONLY);
  SQLite::Statement columns(raw,
                            "SELECT m.name || '.' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' || "
                            "coalesce(c.dflt_value, '-') || ' ' || c.pk"
                            " FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'"
                            " UNION SELECT 'index ' || m.name || ' (' || i.name || ')' FROM sqlite_master m JOIN "
                            "pragma_index_info(m.name) i WHERE m.type = 'index'");
  std::set<std::string> shape;
  while (columns.executeStep()) shape.insert(columns.getColumn(0).getString());
  return shape;
}

TEST(Migration, AVersion1FileKeepsItsRecords) {
  TemporaryFolder folder;
  build_version_1(folder.file("old.db"));
  // Its kernel was checked by no revision that counts: it is there, and not served.
  EXPECT_EQ(Database::open(folder.file("old.db")).query(device(), "scale", "f32", "", {{"n", 64}}).kind, MatchKind::none);
  Database database = Database::open(folder.file("old.db"), {.revisions = {0, 0}});
  EXPECT_EQ(database.query(device(), "scale", "f32", "", {{"n", 64}}).kind, MatchKind::none) << "nobody signed it";
  EXPECT_EQ(database.sign_all(), 1);
  const Match match = database.query(device(), "scale", "f32", "", {{"n", 64}});
  EXPECT_EQ(match.kind, MatchKind::nearest) << "its device has other details";
  EXPECT_EQ(match.distance, 0);
  EXPECT_EQ(match.trial.revision, 0);
  EXPECT_EQ(match.trial.checked, 0);
  EXPECT_EQ(match.trial.id, 7);
  EXPECT_EQ(match.trial.max_error, 0);
  EXPECT_EQ(match.trial.report, "");
  EXPECT_EQ(match.trial.samples_ms, (std::vector<double>{2.0, 1.0}));
  EXPECT_EQ(match.trial.kernel->code, "old code");
  TrialRecord fresh = ok_trial(1, "new code");
  fresh.report = R"({"registers": 40})";
  const std::int64_t id = database.add_trial(device(), problem({{"n", 64}}), "{}", fresh);
  EXPECT_EQ(database.trial(id)->max_error, 1e-6);
  EXPECT_EQ(database.trial(id)->report, R"({"registers":40})");
  EXPECT_TRUE(database.check().empty());
}

// Version 2 as it was: no report.
void build_version_2(const std::string& path) {
  build_version_1(path);
  SQLite::Database raw(path, SQLite::OPEN_READWRITE);
  raw.exec(
      "ALTER TABLE trial ADD COLUMN max_error REAL NOT NULL DEFAULT 0; UPDATE trial SET max_error = 0.5;"
      "UPDATE meta SET value = '2' WHERE key = 'schema_version'");
}

TEST(Migration, AVersion2FileKeepsItsRecords) {
  TemporaryFolder folder;
  build_version_2(folder.file("old.db"));
  const Database database = Database::open(folder.file("old.db"));
  const std::optional<TrialRecord> trial = database.trial(7);
  ASSERT_TRUE(trial.has_value());
  EXPECT_EQ(trial->max_error, 0.5);
  EXPECT_EQ(trial->report, "");
  Database::open(folder.file("new.db"));
  EXPECT_EQ(shape_of(folder.file("old.db")), shape_of(folder.file("new.db")));
}

// Version 3 as it was: no revisions, no status unproved; with a pin, which must survive the table's renewal.
void build_version_3(const std::string& path) {
  build_version_2(path);
  SQLite::Database raw(path, SQLite::OPEN_READWRITE);
  raw.exec(
      "ALTER TABLE trial ADD COLUMN report TEXT NOT NULL DEFAULT ''; UPDATE trial SET report = '{\"registers\":40}';"
      "INSERT INTO pin VALUES (7); UPDATE meta SET value = '3' WHERE key = 'schema_version'");
}

TEST(Migration, AVersion3FileKeepsItsRecordsAndPinsAndServesThemOnceChecked) {
  TemporaryFolder folder;
  build_version_3(folder.file("old.db"));
  Database database = Database::open(folder.file("old.db"));
  Database::open(folder.file("new.db"));
  EXPECT_EQ(shape_of(folder.file("old.db")), shape_of(folder.file("new.db")));
  EXPECT_TRUE(database.check().empty());
  const ProblemKey old = problem({{"n", 64}});
  const DeviceIdentity measured_on = database.devices().at(0);
  EXPECT_FALSE(database.best(measured_on, old).has_value());
  EXPECT_EQ(database.to_check(), (std::vector<std::int64_t>{7}));
  database.store_check(7, {});
  // A faster kernel does not take the place of a pinned one: the pin is still there.
  database.add_trial(measured_on, old, "{}", ok_trial(0.5, "fast"));
  const std::optional<TrialRecord> best = database.best(measured_on, old);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(best->id, 7);
  EXPECT_EQ(best->report, R"({"registers":40})");
  EXPECT_EQ(best->kernel->code, "old code");
  EXPECT_GT(database.add_trial(device(), old, "{}", failed_trial(TrialStatus::unproved, "no proof in 5 s")), 7);
}

TEST(Migration, TheMigratedSchemaEqualsTheNewOne) {
  TemporaryFolder folder;
  build_version_1(folder.file("old.db"));
  EXPECT_NE(shape_of(folder.file("old.db")).count("trial.created TEXT 1 - 0"), 0u);
  Database::open(folder.file("old.db"));
  Database::open(folder.file("new.db"));
  EXPECT_EQ(shape_of(folder.file("old.db")), shape_of(folder.file("new.db")));
  EXPECT_NE(shape_of(folder.file("new.db")).count("trial.max_error REAL 1 0 0"), 0u);
}

TEST(Migration, HappensOnce) {
  TemporaryFolder folder;
  build_version_1(folder.file("old.db"));
  for (int k = 0; k < 3; ++k) EXPECT_EQ(Database::open(folder.file("old.db")).summary().size(), 1u);
}

TEST(Migration, AReadOnlyOpenLeavesAnOldFileAloneAndSaysSo) {
  TemporaryFolder folder;
  build_version_1(folder.file("old.db"));
  const std::string message = message_of([&] { Database::open(folder.file("old.db"), {.read_only = true}); });
  EXPECT_NE(message.find("schema version 1"), std::string::npos) << message;
}

}  // namespace
}  // namespace nestor
