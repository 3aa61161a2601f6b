// What is stored comes back, and the best of it first.
#include "db/database.h"
#include "support/error.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;

class DatabaseTest : public testing::Test {
 protected:
  std::int64_t add(const Sizes& sizes, const TrialRecord& trial) {
    return database.add_trial(device(), problem(sizes), kNest, trial);
  }

  TemporaryFolder folder;
  Database database = Database::open(folder.file("t.db"));
};

TEST_F(DatabaseTest, ATrialComesBackAsItWasStored) {
  const std::int64_t id = add({{"n", 64}, {"m", 8}}, ok_trial(1.25, "code"));
  const TrialRecord trial = database.trial(id).value();
  EXPECT_EQ(trial.id, id);
  EXPECT_EQ(trial.steps, R"(["tile"])");
  EXPECT_EQ(trial.status, TrialStatus::ok);
  EXPECT_THAT(trial.samples_ms, ElementsAre(1.875, 1.25, 0.625));
  EXPECT_EQ(trial.median_ms, 1.25);
  EXPECT_EQ(trial.max_error, 1e-6);
  EXPECT_EQ(trial.toolchain, "test");
  EXPECT_EQ(trial.created, "2025-01-31T12:00:00Z");
  ASSERT_TRUE(trial.kernel);
  EXPECT_EQ(trial.kernel->code, "code");
  EXPECT_EQ(trial.kernel->hash, kernel_hash("code", trial.kernel->recipe));
  EXPECT_EQ(recipe_from_json(nlohmann::json::parse(trial.kernel->recipe)).symbol, "kernel");
}

TEST_F(DatabaseTest, TheOriginOfATrialIsComplete) {
  const std::int64_t id = add({{"n", 64}, {"m", 8}}, ok_trial(1, "code"));
  const Database::Origin origin = database.origin(id).value();
  EXPECT_EQ(origin.device.key(), "host/testcpu/2");
  EXPECT_EQ(origin.device.name, "Test CPU");
  EXPECT_EQ(origin.device.details, R"({"clock_mhz":3000})");
  EXPECT_EQ(origin.problem.op, "scale");
  EXPECT_EQ(origin.problem.nest_digest, "d1");
  EXPECT_EQ(origin.problem.sizes, (Sizes{{"m", 8}, {"n", 64}}));
  EXPECT_EQ(origin.nest_json, kNest);
  EXPECT_FALSE(database.origin(id + 1));
  EXPECT_FALSE(database.trial(0));
}

TEST_F(DatabaseTest, FailuresAreRowsToo) {
  add({{"n", 64}}, ok_trial(1, "a"));
  TrialRecord wrong = failed_trial(TrialStatus::wrong, "y[3] is 7");
  wrong.max_error = std::numeric_limits<double>::quiet_NaN();
  add({{"n", 64}}, wrong);
  const auto trials = database.trials(device(), problem({{"n", 64}}));
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(trials[0].status, TrialStatus::wrong);  // the older one
  EXPECT_EQ(trials[0].reason, "y[3] is 7");
  EXPECT_TRUE(std::isinf(trials[0].max_error));
  EXPECT_FALSE(trials[1].kernel) << "kernels are not read for lists";
  EXPECT_TRUE(database.trials(device(), problem({{"n", 65}})).empty());
  EXPECT_TRUE(database.trials(device("other"), problem({{"n", 64}})).empty());
}

TEST_F(DatabaseTest, EveryStatusHasAName) {
  for (const auto status : {TrialStatus::ok, TrialStatus::illegal, TrialStatus::compile_error, TrialStatus::wrong,
                            TrialStatus::crash, TrialStatus::timeout, TrialStatus::slow, TrialStatus::infeasible}) {
    EXPECT_EQ(trial_status_from(to_string(status)), status);
    add({{"n", 1}}, failed_trial(status, "r"));
  }
  EXPECT_EQ(database.trials(device(), problem({{"n", 1}})).size(), 8u);
  EXPECT_FALSE(trial_status_from("great"));
}

TEST_F(DatabaseTest, TheFastestKernelIsBestUnlessAnotherIsPinned) {
  const std::int64_t slow = add({{"n", 64}}, ok_trial(2, "slow"));
  const std::int64_t fast = add({{"n", 64}}, ok_trial(1, "fast"));
  EXPECT_EQ(database.best(device(), problem({{"n", 64}}))->id, fast);
  database.pin(slow, true);
  EXPECT_EQ(database.best(device(), problem({{"n", 64}}))->id, slow);
  EXPECT_EQ(database.best(device(), problem({{"n", 64}}))->kernel->code, "slow");
  const std::int64_t other = add({{"n", 64}}, ok_trial(3, "other")), elsewhere = add({{"n", 32}}, ok_trial(3, "elsewhere"));
  add({{"n", 32}}, ok_trial(1, "fast elsewhere"));
  database.pin(elsewhere, true);
  database.pin(other, true);
  EXPECT_EQ(database.best(device(), problem({{"n", 64}}))->id, other) << "the last one pinned";
  EXPECT_EQ(database.best(device(), problem({{"n", 32}}))->id, elsewhere) << "another problem's pin stays";
  database.pin(other, false);
  EXPECT_EQ(database.best(device(), problem({{"n", 64}}))->id, fast);
  EXPECT_FALSE(database.best(device(), problem({{"n", 63}})));
}

TEST_F(DatabaseTest, PruningKeepsTheFastestAndThePinned) {
  const std::int64_t pinned = add({{"n", 64}}, ok_trial(9, "pinned"));
  database.pin(pinned, true);
  const std::int64_t first = add({{"n", 64}}, ok_trial(1, "first"));
  const std::int64_t second = add({{"n", 64}}, ok_trial(2, "second"));
  add({{"n", 64}}, ok_trial(3, "third"));
  add({{"n", 64}}, failed_trial(TrialStatus::crash, "signal 11"));
  const std::int64_t elsewhere = add({{"n", 65}}, ok_trial(7, "third"));
  EXPECT_EQ(database.prune(2), 2);
  for (const std::int64_t id : {pinned, first, second, elsewhere}) EXPECT_TRUE(database.trial(id)) << id;
  EXPECT_EQ(database.trials(device(), problem({{"n", 64}})).size(), 3u);
  EXPECT_EQ(database.trial(elsewhere)->kernel->code, "third") << "a kernel that another trial uses stays";
  EXPECT_TRUE(database.check().empty());
}

TEST_F(DatabaseTest, TheSummaryCountsTrialsOfEachProblem) {
  add({{"n", 64}}, ok_trial(2, "a"));
  add({{"n", 64}}, ok_trial(1, "b"));
  add({{"n", 64}}, failed_trial(TrialStatus::timeout, "30 s"));
  add({{"n", 65}}, failed_trial(TrialStatus::illegal, "no"));
  const auto summary = database.summary();
  ASSERT_EQ(summary.size(), 2u);
  EXPECT_EQ(summary[0].problem.sizes, (Sizes{{"n", 64}}));
  EXPECT_EQ(summary[0].trials, 3);
  EXPECT_EQ(summary[0].ok, 2);
  EXPECT_EQ(summary[0].best_ms, 1);
  EXPECT_EQ(summary[1].ok, 0);
  EXPECT_EQ(summary[1].best_ms, 0);
}

TEST_F(DatabaseTest, WhatIsStoredSurvivesReopening) {
  const std::int64_t id = add({{"n", 64}}, ok_trial(2, "a"));
  database = Database::open(folder.file("t.db"));
  EXPECT_EQ(database.trial(id)->kernel->code, "a");
}

TEST_F(DatabaseTest, OneKernelMeasuredTwiceIsStoredOnce) {
  const std::string code(100000, 'x');
  for (int k = 1; k <= 50; ++k) add({{"n", k}}, ok_trial(k, code));
  EXPECT_LT(std::filesystem::file_size(folder.file("t.db")) + std::filesystem::file_size(folder.file("t.db-wal")), 4000000u);
  EXPECT_TRUE(database.check().empty());
}

TEST_F(DatabaseTest, RecordsWithImpossibleContentsAreRefused) {
  TrialRecord trial = ok_trial(1, "a");
  EXPECT_THAT(message_of([&] { add({{"n", 0}}, trial); }), HasSubstr("size n is 0"));
  trial.median_ms = -1;
  EXPECT_THAT(message_of([&] { add({{"n", 1}}, trial); }), HasSubstr("median"));
  trial = ok_trial(1, "a");
  trial.steps = "tile(";
  EXPECT_THAT(message_of([&] { add({{"n", 1}}, trial); }), HasSubstr("steps"));
  trial = ok_trial(1, "a");
  trial.kernel->hash = "00";
  EXPECT_THAT(message_of([&] { add({{"n", 1}}, trial); }), HasSubstr("hash"));
  trial = ok_trial(1, "a");
  trial.kernel->recipe = "{}";
  EXPECT_THAT(message_of([&] { add({{"n", 1}}, trial); }), HasSubstr("target"));
  EXPECT_TRUE(database.summary().empty());
}

TEST_F(DatabaseTest, AMissingTimeIsNow) {
  TrialRecord trial = ok_trial(1, "a");
  trial.created.clear();
  EXPECT_GT(database.trial(add({{"n", 1}}, trial))->created, "2025-01-31T12:00:00Z");
}

// Sets an environment variable for one test.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(DefaultPath, FollowsTheEnvironmentAndIsMadeOnDemand) {
  TemporaryFolder folder;
  const Variable home("HOME", folder.file("home")), data("XDG_DATA_HOME", ""), own("NESTOR_DB", "");
  EXPECT_EQ(Database::default_path(), folder.file("home/.local/share/nestor/tuning.db"));
  {
    const Variable xdg("XDG_DATA_HOME", folder.file("data"));
    EXPECT_EQ(Database::default_path(), folder.file("data/nestor/tuning.db"));
    Database::open(Database::default_path());
    EXPECT_TRUE(std::filesystem::exists(folder.file("data/nestor/tuning.db")));
    const Variable path("NESTOR_DB", folder.file("chosen.db"));
    EXPECT_EQ(Database::default_path(), folder.file("chosen.db"));
  }
  const Variable system("NESTOR_SYSTEM_DB", "/some/system.db");
  EXPECT_EQ(Database::default_system_path(), "/some/system.db");
}

}  // namespace
}  // namespace nestor
