// Revisions of the code generator: what another one made is kept, found again and listed, but serves only after a check.
#include "db/database.h"
#include "support/codegen_revision.h"
#include "unit/db/db_fixture.h"

#include <gmock/gmock.h>

#include <sstream>

namespace nestor {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Sizes kSizes{{"n", 64}};

TrialRecord trial_of(int revision, int checked, double median_ms, const std::string& code) {
  TrialRecord trial = ok_trial(median_ms, code);
  trial.revision = revision;
  trial.checked = checked;
  return trial;
}

class Revisions : public testing::Test {
 protected:
  Database open(int revision) const { return Database::open(folder_.file("1.db"), {.revisions = {revision, revision}}); }
  std::int64_t add(Database& database, const TrialRecord& trial) const {
    return database.add_trial(device(), problem(kSizes), kNest, trial);
  }
  static MatchKind match(const Database& database) { return database.query(device(), "scale", "f32", "", kSizes).kind; }
  static std::optional<TrialRecord> best(const Database& database) { return database.best(device(), problem(kSizes)); }

  TemporaryFolder folder_;
};

TEST_F(Revisions, AKernelServesThisRevisionWhenItOrALaterOneCheckedIt) {
  Database database = open(5);
  add(database, trial_of(5, 5, 2, "code"));
  for (const auto& [revision, served] : std::map<int, bool>{{4, true}, {5, true}, {6, false}}) {
    const Database asked = open(revision);
    EXPECT_EQ(match(asked) == MatchKind::exact, served) << revision;
    EXPECT_EQ(best(asked).has_value(), served) << revision;
    EXPECT_EQ(asked.waiting("scale", "f32"), served ? 0 : 1) << revision;
    EXPECT_EQ(asked.waiting("other", ""), 0);
    EXPECT_EQ(asked.to_check().size(), served ? 0u : 1u) << revision;
    EXPECT_EQ(asked.to_check(true).size(), 1u);
    const Database::ProblemSummary row = asked.summary().at(0);
    EXPECT_EQ(row.ok, served ? 1 : 0);
    EXPECT_EQ(row.waiting, served ? 0 : 1);
    EXPECT_EQ(row.best_ms, served ? 2 : 0);
  }
}

TEST_F(Revisions, HostsAndGpusHaveRevisionsOfTheirOwn) {
  const DeviceIdentity gpu{"cuda", "Test GPU", "sm_90", 132, R"({"memory":1})"};
  const std::string path = folder_.file("kinds.db");
  const auto of = [&](const DeviceIdentity& device, const Database& database) {
    return database.query(device, "scale", "f32", "", kSizes).kind == MatchKind::exact;
  };
  {
    Database database = Database::open(path, {.revisions = {.cuda = 3, .host = 5}});
    add(database, trial_of(5, 5, 2, "host code"));
    TrialRecord gpu_trial = trial_of(3, 3, 1, "GPU code");
    gpu_trial.kernel->architecture = "sm_90";
    database.add_trial(gpu, problem(kSizes), kNest, gpu_trial);
    EXPECT_TRUE(of(device(), database));
    EXPECT_TRUE(of(gpu, database)) << "3 is the revision for GPUs";
    EXPECT_EQ(database.waiting("scale", "f32"), 0);
  }
  Database database = Database::open(path, {.revisions = {.cuda = 3, .host = 6}});
  EXPECT_FALSE(of(device(), database)) << "host code has changed";
  EXPECT_TRUE(of(gpu, database)) << "which is nothing to a GPU";
  EXPECT_EQ(database.waiting("scale", "f32"), 1);
  const std::vector<std::int64_t> waiting = database.to_check();
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_THROW(database.pin(waiting[0], true), UserError);
  database.store_check(waiting[0], {TrialStatus::ok, "", true});
  EXPECT_EQ(database.trial(waiting[0])->checked, 6) << "the revision for hosts";
  EXPECT_TRUE(of(device(), database));
}

TEST_F(Revisions, ATrialOfThisProgramHasTheRevisionOfItsDevice) {
  const DeviceIdentity gpu{"cuda", "Test GPU", "sm_90", 132, R"({"memory":1})"};
  Database database = Database::open(folder_.file("this.db"));
  const auto host_trial = database.trial(add(database, ok_trial(2, "host code")));
  const auto gpu_trial = database.trial(database.add_trial(gpu, problem(kSizes), kNest, ok_trial(1, "GPU code")));
  EXPECT_EQ(std::pair(host_trial->revision, host_trial->checked), std::pair(kCodegenRevisions.host, kCodegenRevisions.host));
  EXPECT_EQ(std::pair(gpu_trial->revision, gpu_trial->checked), std::pair(kCodegenRevisions.cuda, kCodegenRevisions.cuda));
}

TEST_F(Revisions, AnUncheckedKernelNeverTakesThePlaceOfACheckedOne) {
  Database database = open(2);
  add(database, trial_of(1, 1, 1, "fast and old"));
  const std::int64_t checked = add(database, trial_of(1, 2, 3, "slow and checked"));
  EXPECT_EQ(best(database)->id, checked);
  EXPECT_EQ(database.query(device(), "scale", "f32", "", {{"n", 128}}).trial.id, checked);
  EXPECT_EQ(database.best(device(), problem(kSizes), Database::Kernels::unchecked_too)->id, checked);
  std::ostringstream winners;
  database.export_records(winners, Database::Exported::winners);
  EXPECT_THAT(winners.str(), HasSubstr("\"median_ms\":3.0"));
  EXPECT_EQ(database.prune(1), 1);
  EXPECT_EQ(best(database)->id, checked);
}

TEST_F(Revisions, WhatWaitsCanBeSearchedFromButNotPinned) {
  Database database = open(2);
  const std::int64_t old = add(database, trial_of(1, 1, 1, "old"));
  EXPECT_FALSE(best(database).has_value());
  EXPECT_EQ(database.best(device(), problem(kSizes), Database::Kernels::unchecked_too)->id, old);
  EXPECT_THAT(message_of([&] { database.pin(old, true); }), HasSubstr("waits for a check"));
}

TEST_F(Revisions, APassedCheckLetsTheStoredCodeServe) {
  Database database = open(3);
  const std::int64_t same = add(database, trial_of(1, 1, 1, "same")), other = add(database, trial_of(1, 1, 2, "other"));
  database.store_check(same, {.same_code = true});
  database.store_check(other, {});
  EXPECT_EQ(best(database)->id, same);
  EXPECT_EQ(database.trial(same)->revision, 3) << "its steps give this code today";
  EXPECT_EQ(database.trial(other)->revision, 1) << "its steps give other code today";
  EXPECT_EQ(database.trial(other)->checked, 3);
  EXPECT_THAT(database.to_check(), IsEmpty());
}

TEST_F(Revisions, AFailedCheckIsForGood) {
  Database database = open(3);
  const std::int64_t old = add(database, trial_of(2, 2, 1, "bad"));
  std::ostringstream before;
  database.export_records(before);
  database.store_check(old, {TrialStatus::wrong, "error 0.5 at y[0]"});
  EXPECT_EQ(match(database), MatchKind::none);
  EXPECT_EQ(database.trial(old)->status, TrialStatus::wrong);
  EXPECT_EQ(database.trial(old)->reason, "error 0.5 at y[0]");
  EXPECT_EQ(database.trial(old)->kernel->code, "bad") << "kept, so that it can be looked at";
  EXPECT_THAT(database.with_status(TrialStatus::wrong), ElementsAre(old));
  EXPECT_THAT(database.to_check(true), IsEmpty());
  // Not even a line that says it was checked brings it back.
  std::string line = before.str();
  line.replace(line.find("\"checked\":2"), 11, "\"checked\":9");
  line = without_signature(line);
  std::istringstream again(line);
  const Database::Imported imported = database.import_records(again);
  EXPECT_EQ(imported.added + imported.checked, 0);
  EXPECT_EQ(match(database), MatchKind::none);
  EXPECT_THAT(message_of([&] { database.store_check(old, {}); }), HasSubstr("nothing to check"));
}

TEST_F(Revisions, AFailedCheckTakesThePinAway) {
  Database database = open(1);
  const std::int64_t pinned = add(database, trial_of(1, 1, 2, "pinned")), fast = add(database, trial_of(1, 1, 1, "fast"));
  database.pin(pinned, true);
  ASSERT_EQ(best(database)->id, pinned);
  database.store_check(pinned, {TrialStatus::unproved, "no proof"});
  EXPECT_EQ(best(database)->id, fast);
}

TEST_F(Revisions, LinesKeepThemAndOldLinesHaveNone) {
  Database database = open(4);
  add(database, trial_of(3, 4, 1, "code"));
  std::ostringstream out;
  database.export_records(out);
  EXPECT_THAT(out.str(), HasSubstr("\"checked\":4"));
  EXPECT_THAT(out.str(), HasSubstr("\"revision\":3"));
  std::string old = out.str();
  for (const std::string& key : std::vector<std::string>{"\"checked\":4,", "\"revision\":3,"})
    old.erase(old.find(key), key.size());
  old = without_signature(old);

  Database other = Database::open(folder_.file("2.db"), {.revisions = {4, 4}});
  std::istringstream first(old);
  EXPECT_EQ(other.import_records(first).added, 1);
  EXPECT_EQ(match(other), MatchKind::none);
  EXPECT_EQ(other.trial(1)->revision, 0);
  // The same record, checked since: the stored one is released.
  std::istringstream second(out.str());
  const Database::Imported imported = other.import_records(second);
  EXPECT_EQ(imported.added, 0);
  EXPECT_EQ(imported.checked, 1);
  EXPECT_EQ(match(other), MatchKind::exact);
  EXPECT_EQ(other.trial(1)->revision, 3);
  // An old line takes nothing back.
  std::istringstream third(old);
  EXPECT_EQ(other.import_records(third).checked, 0);
  EXPECT_EQ(match(other), MatchKind::exact);
}

TEST_F(Revisions, OnlyOkTrialsAreChecked) {
  Database database = open(1);
  const std::int64_t unproved = add(database, failed_trial(TrialStatus::unproved, "no proof in 5 s"));
  EXPECT_EQ(database.trial(unproved)->checked, 0);
  EXPECT_EQ(database.trial(unproved)->status, TrialStatus::unproved);
  EXPECT_EQ(trial_status_from("unproved"), TrialStatus::unproved);
  EXPECT_THAT(database.to_check(true), IsEmpty());
  EXPECT_THAT(message_of([&] { database.store_check(99, {}); }), HasSubstr("there is no trial 99"));
  EXPECT_THAT(message_of([&] { Database::open(folder_.file("1.db"), {.read_only = true}).store_check(1, {}); }),
              HasSubstr("read-only"));
}

TEST_F(Revisions, TheSystemDatabasesKernelsWaitToo) {
  Database system = Database::open(folder_.file("system.db"), {.revisions = {1, 1}});
  add(system, trial_of(1, 1, 1, "system"));
  const DatabaseOptions options{.system_path = folder_.file("system.db"), .revisions = {2, 2}};
  Database database = Database::open(folder_.file("1.db"), options);
  EXPECT_EQ(match(database), MatchKind::none);
  EXPECT_EQ(database.waiting("", ""), 1);
  EXPECT_THAT(database.to_check(), IsEmpty()) << "it cannot be written";
  EXPECT_THAT(message_of([&] { database.store_check(-1, {}); }), HasSubstr("read-only"));
}

}  // namespace
}  // namespace nestor
