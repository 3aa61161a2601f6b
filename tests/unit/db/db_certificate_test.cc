// Certificates: stored with the kernel that they were made with, sealed by digest, found when altered.
#include "db/database.h"
#include "db/records/encoding.h"
#include "unit/db/db_fixture.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace nestor {
namespace {

using namespace test;
using testing::HasSubstr;

const std::string kText = R"({"blocks":["two threads never touch one element"]})";

TrialRecord certified_trial(double median_ms = 1, const std::string& code = "code") {
  TrialRecord trial = ok_trial(median_ms, code);
  trial.certificate.text = kText;
  return trial;
}

std::int64_t rows(const std::string& path, const std::string& table) {
  SQLite::Database raw(path, SQLite::OPEN_READONLY);
  return raw.execAndGet("SELECT count(*) FROM " + table).getInt64();
}

class Certificates : public testing::Test {
 protected:
  std::string path(const std::string& name = "a.db") const { return folder_.file(name); }
  std::int64_t add(Database& database, const TrialRecord& trial, std::int64_t n = 64) {
    return database.add_trial(device(), problem({{"n", n}}), kNest, trial);
  }
  TemporaryFolder folder_;
};

TEST_F(Certificates, AreReadWithTheirKernel) {
  Database database = Database::open(path());
  const TrialRecord trial = database.trial(add(database, certified_trial())).value();
  EXPECT_EQ(trial.certificate.text, kText);
  EXPECT_EQ(trial.certificate.digest, certificate_digest(kText));
  EXPECT_TRUE(trial.trusted);
  const TrialRecord older = database.trial(add(database, ok_trial(2, "old"))).value();
  EXPECT_EQ(older.certificate.digest, "");
  EXPECT_EQ(older.certificate.text, "");
  EXPECT_TRUE(database.check().empty());
}

TEST_F(Certificates, AreKeptOnceAndLeaveWithTheirLastTrial) {
  Database database = Database::open(path());
  add(database, certified_trial(1, "one"));
  add(database, certified_trial(2, "two"));
  TrialRecord other = certified_trial(3, "three");
  other.certificate.text = R"({"blocks":[]})";
  add(database, other);
  EXPECT_EQ(rows(path(), "certificate"), 2);
  database.prune(1);
  EXPECT_EQ(rows(path(), "certificate"), 1);
}

TEST_F(Certificates, TravelInLinesThatStandAloneAndByDigestBesideAPack) {
  Database database = Database::open(path());
  add(database, certified_trial());
  std::stringstream alone;
  database.export_records(alone);
  Database second = Database::open(path("second.db"));
  second.import_records(alone);
  EXPECT_EQ(second.trial(1)->certificate.text, kText);
  database.export_file(folder_.file("packed.jsonl"));
  Database third = Database::open(path("third.db"));
  third.import_file(folder_.file("packed.jsonl"));
  EXPECT_EQ(third.trial(1)->certificate.digest, certificate_digest(kText));
  EXPECT_EQ(third.trial(1)->certificate.text, "");
  EXPECT_TRUE(third.check().empty());
  third.merge_file(path());
  EXPECT_EQ(third.trial(1)->certificate.text, kText) << "another file has the text of the same trial";
}

TEST_F(Certificates, AnAlteredTextIsLeftOutAndListedByCheck) {
  Database database = Database::open(path());
  add(database, certified_trial());
  {
    SQLite::Database raw(path(), SQLite::OPEN_READWRITE);
    const std::string altered = zstd_compress(R"({"blocks":["all is well"]})");
    SQLite::Statement update(raw, "UPDATE certificate SET text = ?");
    update.bind(1, altered.data(), static_cast<int>(altered.size()));
    update.exec();
  }
  EXPECT_EQ(database.trial(1)->certificate.text, "");
  EXPECT_EQ(database.trial(1)->certificate.digest, certificate_digest(kText));
  EXPECT_THAT(database.check(), testing::Contains(HasSubstr("is not what was stored")));
}

TEST_F(Certificates, AnAlteredDigestBreaksTheSeal) {
  Database database = Database::open(path());
  add(database, certified_trial());
  SQLite::Database(path(), SQLite::OPEN_READWRITE).exec("UPDATE trial SET certificate = ''");
  EXPECT_THAT(message_of([&] { database.trial(1); }), HasSubstr("not what was sealed"));
}

TEST_F(Certificates, LinesWithWrongOnesAreRefused) {
  Database database = Database::open(path());
  add(database, certified_trial());
  std::stringstream out;
  database.export_records(out);
  const auto refusal = [&](const auto& alter) {
    nlohmann::json line = nlohmann::json::parse(without_signature(out.str()));
    alter(line);
    std::stringstream in(line.dump() + "\n");
    return message_of([&] { database.import_records(in); });
  };
  EXPECT_THAT(refusal([](auto& line) { line["certificate"]["text"]["blocks"] = 1; }), HasSubstr("the certificate's digest is"));
  EXPECT_THAT(refusal([](auto& line) { line["certificate"]["digest"] = "abc"; }), HasSubstr("\"digest\" is no digest"));
  EXPECT_THAT(refusal([](auto& line) { line["certificate"] = 3; }), HasSubstr("\"certificate\" is no JSON object"));
  EXPECT_THAT(refusal([](auto& line) { line["kernel"] = nullptr; }), HasSubstr("has a certificate, but no kernel"));
}

// Version 5 as it was: seals and signatures, no certificates.
void make_version_5(const std::string& path) {
  SQLite::Database raw(path, SQLite::OPEN_READWRITE);
  raw.exec(
      "DROP INDEX trial_of_certificate; DROP TABLE certificate; ALTER TABLE trial DROP COLUMN certificate;"
      "UPDATE meta SET value = '5' WHERE key = 'schema_version'");
}

TEST_F(Certificates, AFileOfVersion5KeepsItsSignatures) {
  {
    Database database = Database::open(path());
    add(database, ok_trial(1, "code"));
  }
  make_version_5(path());
  Database database = Database::open(path());
  EXPECT_TRUE(database.trial(1)->trusted);
  EXPECT_TRUE(database.check().empty());
  EXPECT_EQ(database.query(device(), "scale", "f32", "", {{"n", 64}}).kind, MatchKind::exact);
  EXPECT_EQ(database.trial(add(database, certified_trial(2, "new")))->certificate.text, kText);
}

}  // namespace
}  // namespace nestor
