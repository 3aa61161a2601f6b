// Trust: whose records are served, what signatures hold, and that no altered byte goes unseen.
#include "db/database.h"
#include "db/lookup.h"
#include "db/records/record.h"
#include "db/trust/blake2b.h"
#include "db/trust/key_files.h"
#include "support/codegen_revision.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <random>
#include <sstream>

namespace nestor {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

const Sizes kSizes{{"n", 64}};

/// Two users with keys of their own, and their databases.
class Trusting : public testing::Test {
 protected:
  Database open(const std::string& user, bool allow_unsigned = false) const {
    return Database::open(folder_.file(user + ".db"), {.allow_unsigned = allow_unsigned, .key_folder = keys(user)});
  }
  std::string keys(const std::string& user) const { return folder_.file(user + "_keys"); }
  static std::string exported(const Database& database) {
    std::ostringstream out;
    database.export_records(out);
    return out.str();
  }
  static Database::Imported import(Database& database, const std::string& lines) {
    std::istringstream in(lines);
    return database.import_records(in);
  }
  static MatchKind match(const Database& database) { return database.query(device(), "scale", "f32", "", kSizes).kind; }
  /// A line that somebody else made; `drop`: without its signature.
  std::string foreign(double median_ms = 1e-6, bool drop = false) const {
    Database database = open("other");
    if (database.summary().empty()) database.add_trial(device(), problem(kSizes), kNest, ok_trial(median_ms, "code of somebody"));
    nlohmann::json line = nlohmann::json::parse(exported(database));
    if (drop) line.erase("signature");
    return line.dump() + "\n";
  }

  TemporaryFolder folder_;
};

TEST_F(Trusting, WhatIsTunedHereIsSignedAndServed) {
  Database database = open("own");
  const std::int64_t id = database.add_trial(device(), problem(kSizes), kNest, ok_trial(1, "own code"));
  EXPECT_EQ(match(database), MatchKind::exact);
  EXPECT_TRUE(database.trial(id)->trusted);
  EXPECT_EQ(database.trial(id)->signature.signer, database.own_key());
  EXPECT_EQ(match(open("own")), MatchKind::exact) << "the key was kept";
  EXPECT_THAT(open("own").check(), IsEmpty());
}

TEST_F(Trusting, TheKeyIsTheUsersAloneAndInNoDatabase) {
  Database database = open("own");
  database.add_trial(device(), problem(kSizes), kNest, ok_trial(1, "own code"));
  struct stat info{};
  ASSERT_EQ(::stat((keys("own") + "/signing_key").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  const std::string seed = find_signing_key(keys("own"), false).seed;
  ASSERT_THAT(seed, SizeIs(64));
  std::ifstream file(folder_.file("own.db"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(bytes, Not(HasSubstr(seed)));
  EXPECT_THAT(bytes, Not(HasSubstr(from_hex(seed, 32))));
}

TEST_F(Trusting, AKeyThatOthersMayReadIsNotUsed) {
  ASSERT_TRUE(find_signing_key(keys("own"), true).found);
  ASSERT_EQ(::chmod((keys("own") + "/signing_key").c_str(), 0644), 0);
  EXPECT_FALSE(find_signing_key(keys("own"), true).found);
  EXPECT_THAT(find_signing_key(keys("own"), true).problem, HasSubstr("chmod 600"));
}

TEST_F(Trusting, ForeignRecordsWaitUntilTheirKeyIsTrusted) {
  Database database = open("own");
  ASSERT_EQ(import(database, foreign()).added, 1);
  EXPECT_EQ(match(database), MatchKind::none) << "a median of 1e-6 is no reason to run anybody's code";
  EXPECT_EQ(database.waiting("scale", "f32"), 1);
  EXPECT_THAT(database.to_check(), SizeIs(1));
  EXPECT_FALSE(database.best(device(), problem(kSizes)).has_value());
  EXPECT_FALSE(database.trial(1)->trusted);
  EXPECT_EQ(match(open("own", true)), MatchKind::exact) << "the explicit word";
  store_trusted_keys(keys("own"), {{open("other").own_key(), "a colleague"}});
  EXPECT_EQ(match(open("own")), MatchKind::exact);
  store_trusted_keys(keys("own"), {});
  EXPECT_EQ(match(open("own")), MatchKind::none);
}

TEST_F(Trusting, UnsignedRecordsWaitToo) {
  Database database = open("own");
  ASSERT_EQ(import(database, foreign(1, true)).added, 1);
  EXPECT_EQ(match(database), MatchKind::none);
  EXPECT_THAT(database.check(), IsEmpty()) << "nobody's signature is no damage";
  EXPECT_EQ(database.sign_all(), 1);
  EXPECT_EQ(match(database), MatchKind::exact) << "the user vouches for it";
  EXPECT_EQ(database.sign_all(), 0);
}

TEST_F(Trusting, AnAlteredSignedLineIsRefused) {
  Database database = open("own");
  for (const auto& [pointer, value] : std::map<std::string, nlohmann::json>{{"/median_ms", 0.5},
                                                                            {"/checked", 99},
                                                                            {"/problem/sizes/n", 65},
                                                                            {"/device/name", "Other CPU"},
                                                                            {"/steps", nlohmann::json::array()},
                                                                            {"/reason", "good"},
                                                                            {"/kernel/architecture", "x86-64:other:"}}) {
    nlohmann::json line = nlohmann::json::parse(foreign());
    line[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_THAT(message_of([&] { import(database, line.dump()); }), HasSubstr("line 1: the record's signature")) << pointer;
  }
  EXPECT_TRUE(database.summary().empty());
}

TEST_F(Trusting, AnUntrustedLineDoesNotTouchWhatIsTrusted) {
  Database database = open("own");
  const std::int64_t id = database.add_trial(device(), problem(kSizes), kNest, ok_trial(1, "own code"));
  nlohmann::json line = nlohmann::json::parse(exported(database));
  line.erase("signature");
  line["checked"] = 1000;
  EXPECT_EQ(import(database, line.dump()).checked, 0);
  EXPECT_EQ(database.trial(id)->checked, kCodegenRevisions.host);
  EXPECT_TRUE(database.trial(id)->trusted);
}

TEST_F(Trusting, AClaimWithoutASignatureIsSkipped) {
  Database database = open("own");
  ASSERT_EQ(import(database, foreign(1, true)).added, 1);
  SQLite::Database raw(folder_.file("own.db"), SQLite::OPEN_READWRITE);
  SQLite::Statement claim(raw, "UPDATE trial SET signer = ?, signature = ?");
  claim.bind(1, database.own_key());
  claim.bind(2, std::string(128, '0'));
  claim.exec();
  std::vector<std::string> warnings;
  const Database asked = Database::open(
      folder_.file("own.db"), {.key_folder = keys("own"), .warn = [&](const std::string& text) { warnings.push_back(text); }});
  EXPECT_EQ(match(asked), MatchKind::none);
  EXPECT_THAT(warnings, testing::Contains(HasSubstr("is not one of the key")));
  EXPECT_THAT(asked.check(), testing::ElementsAre(HasSubstr("its signature is not one of the key")));
}

TEST_F(Trusting, WithoutAPlaceForAKeyTheProcessStillServesItself) {
  Database database = Database::open(folder_.file("own.db"), {.key_folder = "/proc/nowhere", .warn = [](const std::string&) {}});
  database.add_trial(device(), problem(kSizes), kNest, ok_trial(1, "own code"));
  EXPECT_EQ(match(database), MatchKind::exact);
  EXPECT_EQ(match(open("own")), MatchKind::none);
}

TEST_F(Trusting, ASignatureIsOneOfItsMessageAndKeyAlone) {
  const SigningKey key = SigningKey::random(), other = SigningKey::random();
  const std::string signature = key.sign("message");
  EXPECT_TRUE(is_signed("message", key.public_key(), signature));
  EXPECT_FALSE(is_signed("massage", key.public_key(), signature));
  EXPECT_FALSE(is_signed("message", other.public_key(), signature));
  EXPECT_FALSE(is_signed("message", key.public_key(), ""));
  EXPECT_FALSE(is_signed("message", "", signature));
  EXPECT_EQ(SigningKey::from_seed(key.seed()).public_key(), key.public_key());
  EXPECT_THROW(SigningKey::from_seed("00"), UserError);
}

TEST_F(Trusting, TriggersViewsAndOtherTablesAreRefused) {
  for (const std::string sql :
       {"CREATE TRIGGER gone AFTER INSERT ON trial BEGIN DELETE FROM trial; END", "CREATE VIEW seen AS SELECT * FROM trial",
        "CREATE TABLE \"more\x1b[31m\" (x)", "ALTER TABLE trial ADD COLUMN extra TEXT GENERATED ALWAYS AS (steps)"}) {
    const std::string path = folder_.file("supplied.db");
    std::filesystem::remove(path);
    Database::open(path, {.key_folder = keys("own")});
    SQLite::Database(path, SQLite::OPEN_READWRITE).exec(sql);
    for (const bool read_only : {false, true}) {
      const std::string message = message_of([&] { Database::open(path, {.read_only = read_only, .key_folder = keys("own")}); });
      EXPECT_THAT(message, testing::AnyOf(HasSubstr("which Nestor did not make"), HasSubstr("is damaged"))) << sql;
      EXPECT_THAT(message, Not(HasSubstr("\x1b"))) << "names of others are not obeyed by a terminal";
    }
  }
}

// Written into the schema itself, where no statement of SQL can put it.
TEST_F(Trusting, AnAlteredSchemaIsDamage) {
  for (const std::string change :
       {"UPDATE sqlite_master SET sql = replace(sql, 'median_ms  REAL NOT NULL', 'median_ms REAL NOT NULL CHECK (median_ms > "
        "1e9)')",
        "UPDATE sqlite_master SET sql = replace(sql, 'reason     TEXT NOT NULL', 'reason TEXT NOT NULL COLLATE NOCASE')",
        "UPDATE sqlite_master SET sql = replace(sql, 'steps      TEXT NOT NULL', 'steps TEXT NOT NULL DEFAULT 1')",
        "UPDATE sqlite_master SET sql = replace(sql, 'ON trial (kernel_id)', 'ON trial (id)')",
        "CREATE INDEX more ON trial (reason)", "UPDATE meta SET value = '5'",
        "UPDATE meta SET value = '5'; DROP TABLE certificate"}) {
    const std::string path = folder_.file("altered.db");
    for (const char* side : {"", "-wal", "-shm"}) std::filesystem::remove(path + side);
    Database::open(path, {.key_folder = keys("own")});
    SQLite::Database(path, SQLite::OPEN_READWRITE).exec("PRAGMA writable_schema = ON; " + change);
    EXPECT_THAT(message_of([&] { Database::open(path, {.key_folder = keys("own")}); }), HasSubstr("is damaged")) << change;
  }
}

// Flips one bit at a time, anywhere in the file: the export stays the same, or the check says that something is wrong.
TEST_F(Trusting, NoFlippedBitChangesAnAnswerUnseen) {
  const std::string path = folder_.file("own.db"), broken = folder_.file("broken.db");
  std::string good;
  {
    Database database = open("own");
    for (int k = 1; k <= 6; ++k)
      database.add_trial(device(), problem({{"n", k}, {"m", 7}}), kNest, ok_trial(0.5 * k, "code " + std::to_string(k)));
    database.add_trial(device("other"), problem(kSizes), kNest, failed_trial(TrialStatus::crash, "it fell"));
    database.pin(3, true);
    import(database, foreign(1, true));
    good = exported(database);
    ASSERT_THAT(database.check(), IsEmpty());
  }
  SQLite::Database(path, SQLite::OPEN_READWRITE).exec("PRAGMA journal_mode = DELETE");
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::mt19937 random(7);
  int unseen = 0, changed = 0;
  for (int flip = 0; flip < 3000; ++flip) {
    const std::size_t at = random() % bytes.size();
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random() % 8);
    std::ofstream(broken, std::ios::binary) << damaged;
    std::string now;
    bool said = false;
    try {
      const Database database =
          Database::open(broken, {.read_only = true, .key_folder = keys("own"), .warn = [](const std::string&) {}});
      said = !database.check().empty();
      now = exported(database);
    } catch (const Error&) {
      said = true;
    }
    changed += now != good ? 1 : 0;
    if (now != good && !said) {
      ++unseen;
      ADD_FAILURE() << "bit at byte " << at;
    }
  }
  EXPECT_EQ(unseen, 0);
  EXPECT_GT(changed, 100) << "the test flips bits that matter";
}

// The seals that are compiled in are those of the records that come with Nestor. NESTOR_UPDATE_GOLDEN=1 writes them.
TEST_F(Trusting, ShippedRecordsAreServedAsTheyAre) {
  Database database = open("own");
  for (const auto& entry : std::filesystem::directory_iterator(NESTOR_TUNING_DB)) {
    if (entry.path().extension() == ".jsonl") database.import_file(entry.path().string());
  }
  SQLite::Database raw(folder_.file("own.db"), SQLite::OPEN_READONLY);
  SQLite::Statement row(raw, "SELECT seal FROM trial ORDER BY seal");
  std::string seals;
  while (row.executeStep()) seals += row.getColumn(0).getString() + "\n";
  if (std::getenv("NESTOR_UPDATE_GOLDEN") != nullptr) std::ofstream(NESTOR_TUNING_DB "/seals.txt") << seals;
  EXPECT_TRUE(seals == kShippedSeals) << "run this test with NESTOR_UPDATE_GOLDEN=1";
  EXPECT_EQ(database.waiting("", ""), 0);
  for (const Database::ProblemSummary& entry : database.summary()) {
    if (entry.ok == 0) continue;
    const ProblemKey& asked = entry.problem;
    EXPECT_EQ(database.query(entry.device, asked.op, asked.variant, asked.nest_digest, asked.sizes).kind, MatchKind::exact)
        << asked.op;
  }
}

/// Steps of SQLite's machine, in hundreds, that a look-up for other sizes takes.
int steps_of_look_up(Store& store, const DeviceIdentity& on) {
  int steps = 0;
  const Ask ask{&on, "scale", "f32", "", {{"n", 65}}};
  const auto look = [&] { return find_nearest(store, ask, true, [](const std::string&) {}); };
  EXPECT_TRUE(look().has_value());
  const auto count = [](void* counter) { return ++*static_cast<int*>(counter), 0; };
  sqlite3_progress_handler(store.connection().raw().getHandle(), 100, count, &steps);
  EXPECT_TRUE(look().has_value());
  sqlite3_progress_handler(store.connection().raw().getHandle(), 0, nullptr, nullptr);
  return steps;
}

TEST_F(Trusting, LookUpsDoNotPassOverWhatWaits) {
  Database database = open("own");
  database.add_trial(device(), problem(kSizes), kNest, ok_trial(1, "own code"));
  const auto steps = [&] {
    Store store(folder_.file("own.db"), {.read_only = true},
                std::make_shared<Trust>(Trust::load({.folder = keys("own")}, [](const std::string&) {})));
    return steps_of_look_up(store, device());
  };
  const int alone = steps();
  nlohmann::json line = nlohmann::json::parse(foreign(1e-6, true));
  std::string lines;
  for (int k = 0; k < 3000; ++k) {
    line["created"] = fmt::format("2025-01-31T12:{:02}:{:02}Z", k / 60, k % 60);
    lines += line.dump() + "\n";
  }
  ASSERT_EQ(import(database, lines).added, 3000);
  EXPECT_LE(steps(), alone + 10) << "of " << alone << " alone";
  database.allow_unsigned(true);
  EXPECT_EQ(database.query(device(), "scale", "f32", "", kSizes).trial.median_ms, 1e-6);
}

TEST_F(Trusting, AFileWithoutTheIndicesAnswersAlikeAndGetsThem) {
  open("own").add_trial(device(), problem(kSizes), kNest, ok_trial(1, "own code"));
  const auto indices = [&](const char* change) {
    SQLite::Database raw(folder_.file("own.db"), SQLite::OPEN_READWRITE);
    raw.exec(change);
    return raw.execAndGet("SELECT count(*) FROM sqlite_master WHERE name IN ('trial_of_signer', 'trial_of_seal')").getInt();
  };
  ASSERT_EQ(indices("DROP INDEX trial_of_signer; DROP INDEX trial_of_seal"), 0);
  EXPECT_EQ(match(Database::open(folder_.file("own.db"), {.read_only = true, .key_folder = keys("own")})), MatchKind::exact);
  {
    SQLite::Database other(folder_.file("own.db"), SQLite::OPEN_READWRITE);
    const SQLite::Transaction held(other, SQLite::TransactionBehavior::IMMEDIATE);
    EXPECT_EQ(match(open("own")), MatchKind::exact) << "nobody waits for an index";
  }
  EXPECT_EQ(indices(""), 0);
  EXPECT_EQ(match(open("own")), MatchKind::exact);
  EXPECT_EQ(indices(""), 2);
}

}  // namespace
}  // namespace nestor
