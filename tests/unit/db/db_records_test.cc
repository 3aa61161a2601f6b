// Text records: the same contents give the same text, and text gives the same contents.
#include "db/database.h"
#include "db/records/encoding.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace nestor {
namespace {

using namespace test;

std::string exported(const Database& database, Database::Exported which = Database::Exported::all) {
  std::ostringstream out;
  database.export_records(out, which);
  return out.str();
}

void fill(Database& database, bool backwards) {
  std::vector<std::pair<Sizes, TrialRecord>> trials;
  for (int k = 1; k <= 4; ++k)
    trials.emplace_back(Sizes{{"n", k}}, ok_trial(0.1 * k, std::string("code\0\xff", 6) + std::to_string(k)));
  TrialRecord wrong = failed_trial(TrialStatus::wrong, "worst at y[\"3\"]\n");
  wrong.max_error = std::numeric_limits<double>::infinity();
  trials.emplace_back(Sizes{{"n", 1}}, wrong);
  trials.front().second.report = R"({"registers":40})";
  trials.emplace_back(Sizes{{"n", 1}}, ok_trial(3, "slower"));
  if (backwards) std::reverse(trials.begin(), trials.end());
  for (const auto& [sizes, trial] : trials) database.add_trial(device(), problem(sizes), kNest, trial);
}

TEST(Records, ExportDoesNotDependOnTheOrderOfStoring) {
  TemporaryFolder folder;
  Database first = Database::open(folder.file("1.db")), second = Database::open(folder.file("2.db"));
  fill(first, false);
  fill(second, true);
  EXPECT_EQ(exported(first), exported(second));
}

TEST(Records, ImportRestoresWhatWasExported) {
  TemporaryFolder folder;
  Database from = Database::open(folder.file("1.db")), to = Database::open(folder.file("2.db"));
  fill(from, false);
  from.pin(from.best(device(), problem({{"n", 2}}))->id, true);
  const std::string text = exported(from);
  std::istringstream in(text);
  EXPECT_EQ(to.import_records(in).added, 6);
  EXPECT_EQ(exported(to), text);
  EXPECT_EQ(to.best(device(), problem({{"n", 1}}))->kernel->code, (std::string("code\0\xff", 6) + "1"));
  EXPECT_EQ(to.best(device(), problem({{"n", 1}}))->report, R"({"registers":40})");
  EXPECT_EQ(to.best(device(), problem({{"n", 2}}))->report, "");
  EXPECT_TRUE(to.check().empty());
}

TEST(Records, WinnersMayHaveToKeepEverythingInRegisters) {
  TemporaryFolder folder;
  Database database = Database::open(folder.file("1.db"));
  const auto add = [&](std::int64_t n, double ms, const std::string& report) {
    TrialRecord trial = ok_trial(ms, "code of " + std::to_string(n) + " in " + std::to_string(ms));
    trial.report = report;
    database.add_trial(device(), problem({{"n", n}}), kNest, trial);
  };
  const std::string spills = R"({"kernels":[{"local_bytes":0},{"local_bytes":8}]})", none = R"({"kernels":[{"local_bytes":0}]})";
  add(1, 1, spills);
  add(1, 2, none);
  add(2, 1, spills);
  add(2, 2, spills);
  add(3, 1, "");  // nothing is known
  add(3, 2, none);
  const auto times = [&](Database::Exported which) {
    std::vector<double> found;
    std::istringstream lines(exported(database, which));
    for (std::string line; std::getline(lines, line);) found.push_back(nlohmann::json::parse(line).at("median_ms").get<double>());
    return found;
  };
  EXPECT_THAT(times(Database::Exported::winners), ::testing::ElementsAre(1, 1, 1));
  EXPECT_THAT(times(Database::Exported::winners_in_registers), ::testing::ElementsAre(2, 1, 1));
}

TEST(Records, DuplicatesAreSkipped) {
  TemporaryFolder folder;
  Database database = Database::open(folder.file("1.db"));
  fill(database, false);
  const std::string text = exported(database);
  std::istringstream twice(text + "\n" + text);
  EXPECT_EQ(database.import_records(twice).added, 0);
  Database other = Database::open(folder.file("2.db"));
  std::istringstream again(text + "\n" + text);
  EXPECT_EQ(other.import_records(again).added, 6);
}

TEST(Records, WinnersAloneAreOneLineAProblem) {
  TemporaryFolder folder;
  Database database = Database::open(folder.file("1.db"));
  fill(database, false);
  const std::string text = exported(database, Database::Exported::winners);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_EQ(text.find("\"median_ms\":3.0"), std::string::npos);
}

TEST(Encoding, Base64RoundTripsEveryLength) {
  std::string data;
  for (int k = 0; k < 300; ++k) {
    EXPECT_EQ(base64_decode(base64_encode(data)), data);
    data += static_cast<char>(k * 37);
  }
  EXPECT_EQ(base64_encode("Ma"), "TWE=");
  for (const char* bad : {"abc", "ab*d", "TWF=", "=AAA", "TW==TW=="}) EXPECT_THROW(base64_decode(bad), UserError) << bad;
}

TEST(Encoding, ZstdRoundTripsAndRefusesDamage) {
  const std::string data(5000, 'a');
  const std::string packed = zstd_compress(data);
  EXPECT_LT(packed.size(), 100u);
  EXPECT_EQ(zstd_decompress(packed), data);
  EXPECT_EQ(zstd_decompress(zstd_compress("")), "");
  EXPECT_THROW(zstd_decompress(packed.substr(0, packed.size() - 1)), UserError);
  EXPECT_THROW(zstd_decompress("plain text"), UserError);
}

TEST(Encoding, AFewBytesThatGrowToAGigabyteAreRefusedBeforeTheyDo) {
  const std::string bomb = zstd_compress(std::string(std::size_t{1} << 30, 'x'));
  ASSERT_LT(bomb.size(), std::size_t{1} << 20);
  EXPECT_THROW(zstd_decompress(bomb), UserError);
}

}  // namespace
}  // namespace nestor
