// Look-up: exact sizes, else the nearest valid kernel, else another device's, else none.
#include "db/database.h"
#include "db/lookup.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>

namespace nestor {
namespace {

using namespace test;
using testing::HasSubstr;

SizeConstraint at_least(std::int64_t bound) { return {{{"n", 1}}, -bound, false, 0}; }
SizeConstraint divisible(std::int64_t by) { return {{{"n", 1}}, 0, false, by}; }

class LookupTest : public testing::Test {
 protected:
  std::int64_t add(std::int64_t n, double ms, const std::string& code, const std::vector<SizeConstraint>& valid = {},
                   const DeviceIdentity& on = device(), const std::string& digest = "d1") {
    return database.add_trial(on, problem({{"n", n}}, "scale", digest), kNest, ok_trial(ms, code, valid));
  }
  Match query(std::int64_t n, const std::string& digest = "") {
    return database.query(device(), "scale", "f32", digest, {{"n", n}});
  }

  TemporaryFolder folder;
  std::vector<std::string> warnings;
  DatabaseOptions options{.system_path = "", .warn = [this](const std::string& text) { warnings.push_back(text); }};
  Database database = Database::open(folder.file("t.db"), options);
};

TEST_F(LookupTest, ExactSizesWin) {
  add(64, 2, "slow");
  add(64, 1, "fast");
  add(128, 0.5, "other size");
  const Match match = query(64);
  EXPECT_EQ(match.kind, MatchKind::exact);
  EXPECT_EQ(match.distance, 0);
  EXPECT_EQ(match.trial.kernel->code, "fast");
  EXPECT_EQ(match.problem.sizes, (Sizes{{"n", 64}}));
}

TEST_F(LookupTest, OtherwiseTheNearestMeasuredSizeAnswers) {
  add(64, 1, "64");
  add(256, 1, "256");
  const Match match = query(200);
  EXPECT_EQ(match.kind, MatchKind::nearest);
  EXPECT_NEAR(match.distance, 0.356, 0.001);
  EXPECT_EQ(match.trial.kernel->code, "256");
  EXPECT_EQ(query(100).trial.kernel->code, "64");
}

TEST_F(LookupTest, KernelsThatAreNotValidForTheAskedSizesAreSkipped) {
  add(256, 1, "only multiples of 16", {divisible(16)});
  add(256, 3, "slower, any size");
  add(64, 1, "far");
  EXPECT_EQ(query(200).trial.kernel->code, "slower, any size");
  EXPECT_EQ(query(208).trial.kernel->code, "only multiples of 16");
}

TEST_F(LookupTest, AFartherKernelAnswersWhenNoNearerOneIsValid) {
  add(256, 1, "large only", {at_least(256)});
  add(16, 1, "any");
  const Match match = query(255);
  EXPECT_EQ(match.kind, MatchKind::nearest);
  EXPECT_EQ(match.trial.kernel->code, "any");
}

TEST_F(LookupTest, NothingFits) {
  EXPECT_EQ(query(64).kind, MatchKind::none);
  add(256, 1, "large only", {at_least(256)});
  EXPECT_EQ(query(64).kind, MatchKind::none);
  EXPECT_EQ(database.query(device(), "scale", "f16", "", {{"n", 256}}).kind, MatchKind::none);
  EXPECT_EQ(database.query(device(), "other", "f32", "", {{"n", 256}}).kind, MatchKind::none);
  EXPECT_EQ(database.query(device(), "scale", "f32", "", {{"m", 256}}).kind, MatchKind::none);
  EXPECT_EQ(database.query(device(), "scale", "f32", "", {{"n", 256}, {"m", 1}}).kind, MatchKind::none);
}

TEST_F(LookupTest, TrialsWithoutAKernelDoNotAnswer) {
  database.add_trial(device(), problem({{"n", 64}}), kNest, failed_trial(TrialStatus::slow, "cut early"));
  EXPECT_EQ(query(64).kind, MatchKind::none);
}

TEST_F(LookupTest, AnotherDevicesKernelAnswersOnlyIfItCanRunHere) {
  TrialRecord alien = ok_trial(1, "alien");
  alien.kernel->architecture = "aarch64:a64fx:+sve";
  database.add_trial(device("a64fx"), problem({{"n", 64}}), kNest, alien);
  EXPECT_EQ(query(64).kind, MatchKind::none);
  add(128, 1, "cousin", {}, device("cousin"));
  const Match match = query(64);
  EXPECT_EQ(match.kind, MatchKind::other_device);
  EXPECT_EQ(match.distance, 1);
  EXPECT_EQ(match.device.arch, "cousin");
  add(1024, 9, "own");
  EXPECT_EQ(query(64).kind, MatchKind::nearest) << "this device comes before a nearer size elsewhere";
}

TEST_F(LookupTest, APinnedTrialAnswersFirst) {
  const std::int64_t slow = add(64, 2, "slow");
  add(64, 1, "fast");
  database.pin(slow, true);
  EXPECT_EQ(query(64).trial.id, slow);
  EXPECT_EQ(query(65).trial.id, slow);
}

TEST_F(LookupTest, ADigestRestrictsToOneDefinition) {
  add(64, 1, "new definition", {}, device(), "d2");
  add(64, 2, "old definition", {}, device(), "d1");
  EXPECT_EQ(query(64).trial.kernel->code, "new definition");
  EXPECT_EQ(query(64, "d1").trial.kernel->code, "old definition");
  EXPECT_EQ(query(64, "d3").kind, MatchKind::none);
}

TEST_F(LookupTest, TheSystemDatabaseAnswersWhereTheUsersDoesNot) {
  {
    Database system = Database::open(folder.file("system.db"));
    system.add_trial(device(), problem({{"n", 64}}), kNest, ok_trial(1, "system 64"));
    system.add_trial(device(), problem({{"n", 512}}), kNest, ok_trial(1, "system 512"));
  }
  options.system_path = folder.file("system.db");
  database = Database::open(folder.file("t.db"), options);
  add(512, 2, "own 512");
  const Match match = query(64);
  EXPECT_EQ(match.kind, MatchKind::exact);
  EXPECT_EQ(match.trial.kernel->code, "system 64");
  ASSERT_LT(match.trial.id, 0);
  EXPECT_EQ(database.trial(match.trial.id)->kernel->code, "system 64");
  EXPECT_EQ(database.origin(match.trial.id)->problem.sizes, (Sizes{{"n", 64}}));
  EXPECT_THAT(message_of([&] { database.pin(match.trial.id, true); }), HasSubstr("read-only"));
  EXPECT_EQ(query(512).trial.kernel->code, "system 512") << "the faster one of two exact ones";
  EXPECT_EQ(database.trials(device(), problem({{"n", 512}})).size(), 2u);
  EXPECT_EQ(database.summary().size(), 1u) << "the system's records are not the user's";
}

TEST_F(LookupTest, ExactComparesTheWholeIdentityOfTheDevice) {
  add(64, 1, "measured here");
  const auto kind = [&](const std::string& name, const std::string& details) {
    DeviceIdentity asked = device();
    asked.name = name;
    asked.details = details;
    return database.query(asked, "scale", "f32", "", {{"n", 64}}).kind;
  };
  EXPECT_EQ(kind("Test CPU", R"({"clock_mhz":3000})"), MatchKind::exact);
  EXPECT_EQ(kind("Test CPU", R"({"clock_mhz":3000,"driver_cuda_version":12080})"), MatchKind::exact) << "drivers come and go";
  EXPECT_EQ(kind("Test CPU", R"({"clock_mhz":3000,"cpus":192})"), MatchKind::nearest) << "another machine of the model";
  EXPECT_EQ(kind("Test CPU", R"({"clock_mhz":3000,"uuid":"GPU-1"})"), MatchKind::nearest);
  EXPECT_EQ(kind("Other CPU", R"({"clock_mhz":3000})"), MatchKind::other_device) << "a renamed machine";
}

TEST_F(LookupTest, ADamagedKernelIsReportedSkippedAndListedByCheck) {
  add(64, 1, "damaged");
  add(64, 2, "sound");
  {
    SQLite::Database raw(folder.file("t.db"), SQLite::OPEN_READWRITE);
    SQLite::Statement damage(raw, "UPDATE kernel SET recipe = recipe || ' ' WHERE id = 1");
    damage.exec();
  }
  EXPECT_EQ(query(64).trial.kernel->code, "sound");
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("kernel 1 is damaged"));
  EXPECT_EQ(database.best(device(), problem({{"n", 64}}))->kernel->code, "sound");
  ASSERT_EQ(database.check().size(), 1u);
  EXPECT_THAT(database.check()[0], HasSubstr("hash does not match"));
}

TEST_F(LookupTest, SizesMustBePositive) {
  EXPECT_THAT(message_of([&] { query(0); }), HasSubstr("size n is 0"));
}

TEST(SizeDistance, IsTheSumOfLogRatiosOverAllSizes) {
  EXPECT_EQ(size_distance({{"a", 8}, {"b", 2}}, {{"a", 2}, {"b", 4}}), 3);
  EXPECT_EQ(size_distance({}, {}), 0);
  EXPECT_FALSE(size_distance({{"a", 8}}, {{"b", 8}}));
}

}  // namespace
}  // namespace nestor
