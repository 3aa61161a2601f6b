// Records of others: their code never runs; what their steps give here is measured, and serves.
#include "api/check_records.h"

#include "api/operators.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "db/database.h"
#include "poly/nest/nest_json.h"
#include "support/codegen_revision.h"
#include "support/temporary_folder.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace nestor {
namespace {

class ForeignRecords : public testing::Test {
 protected:
  ForeignRecords() : nest_(load_operator("rmsnorm")), sizes_(complete_sizes(nest_, {{"rows", 6}, {"width", 16}})) {
    options_.threads = 2;
    record_ = measure_schedule(Schedule(nest_for_tuning(nest_, sizes_)), nest_, sizes_, options_);
    record_.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes_), {}).dump();
  }

  /// A line about this machine, signed by nobody. Its code would end the process that runs it.
  std::string foreign_line() {
    record_.kernel->code = "no object at all";
    record_.kernel->hash.clear();
    record_.median_ms = 1e-6;
    Database other = Database::open(folder_.file("other.db"), {.key_folder = folder_.file("other_keys")});
    other.add_trial(device_identity({}, 2), problem_key(nest_, sizes_), nest_to_text(nest_), record_);
    std::ostringstream out;
    other.export_records(out);
    nlohmann::json line = nlohmann::json::parse(out.str());
    line.erase("signature");
    return line.dump();
  }

  std::vector<RecordCheck> check() {
    CheckRecordsOptions options;
    options.measure = options_;
    std::vector<RecordCheck> checks;
    check_records(path_, Database::open(path_).to_check(), options, [&](const RecordCheck& found) { checks.push_back(found); });
    return checks;
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.file("own.db");
  Nest nest_;
  Sizes sizes_;
  MeasureOptions options_;
  TrialRecord record_;
};

TEST_F(ForeignRecords, ACheckPutsCodeOfThisProgramInThePlaceOfTheirs) {
  ASSERT_EQ(record_.status, TrialStatus::ok) << record_.reason;
  const std::string own_code = record_.kernel->code;
  {
    Database database = Database::open(path_);
    std::istringstream in(foreign_line());
    ASSERT_EQ(database.import_records(in).added, 1);
    EXPECT_FALSE(database.best(device_identity({}, 2), problem_key(nest_, sizes_)).has_value());
  }
  const std::vector<RecordCheck> checks = check();
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].result, RecordCheck::Result::passed) << checks[0].reason;
  const Database database = Database::open(path_);
  const std::optional<TrialRecord> best = database.best(device_identity({}, 2), problem_key(nest_, sizes_));
  ASSERT_TRUE(best.has_value());
  EXPECT_TRUE(best->trusted);
  EXPECT_EQ(best->kernel->code, own_code);
  EXPECT_GT(best->median_ms, 1e-6) << "measured here";
  EXPECT_EQ(best->revision, kCodegenRevisions.host);
  EXPECT_THAT(database.check(), testing::IsEmpty());
}

TEST_F(ForeignRecords, VerifyingOneDoesNotRunItsCode) {
  Database database = Database::open(path_);
  std::istringstream in(foreign_line());
  ASSERT_EQ(database.import_records(in).added, 1);
  const Verification verification = verify_trial(database, 1, options_);
  EXPECT_TRUE(verification.passed());
  EXPECT_THAT(verification.findings.back().detail, testing::HasSubstr("not run: it is signed by nobody"));
}

TEST_F(ForeignRecords, StepsThatCannotBeReplayedFail) {
  record_.steps = trial_steps_json(nest_, specialized_sizes(nest_, sizes_), {Step{"parallel", {"no_such_loop"}}}).dump();
  {
    Database database = Database::open(path_);
    std::istringstream in(foreign_line());
    ASSERT_EQ(database.import_records(in).added, 1);
  }
  const std::vector<RecordCheck> checks = check();
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].result, RecordCheck::Result::failed);
  EXPECT_EQ(Database::open(path_).waiting("", ""), 0) << "it never serves";
}

/// One trial of this machine, signed, in the own file; then `sql` damages it.
class DamagedRecords : public ForeignRecords {
 protected:
  std::vector<RecordCheck> check_after(const std::string& sql) {
    Database::open(path_).add_trial(device_identity({}, 2), problem_key(nest_, sizes_), nest_to_text(nest_), record_);
    SQLite::Database(path_, SQLite::OPEN_READWRITE).exec(sql);
    CheckRecordsOptions options;
    options.measure = options_;
    std::vector<RecordCheck> checks;
    check_records(path_, {1}, options, [&](const RecordCheck& found) { checks.push_back(found); });
    return checks;
  }
};

TEST_F(DamagedRecords, DamagedCodeIsCompiledAgainAndServes) {
  const std::vector<RecordCheck> checks = check_after("UPDATE kernel SET code = x'00'");
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].result, RecordCheck::Result::passed) << checks[0].reason;
  const Database database = Database::open(path_);
  EXPECT_EQ(database.trial(1)->kernel->code, record_.kernel->code);
  EXPECT_THAT(database.check(), testing::IsEmpty());
}

TEST_F(DamagedRecords, ADamagedRecordIsNoWrongResult) {
  const std::vector<RecordCheck> checks = check_after("UPDATE device SET arch = 'x'");
  ASSERT_EQ(checks.size(), 1u);
  EXPECT_EQ(checks[0].result, RecordCheck::Result::damaged);
  EXPECT_THAT(checks[0].reason, testing::HasSubstr("measure it again"));
  Database database = Database::open(path_);
  EXPECT_THAT(database.with_status(TrialStatus::ok), testing::ElementsAre(1));
  // Measuring again mends what the two share.
  database.add_trial(device_identity({}, 2), problem_key(nest_, sizes_), nest_to_text(nest_), record_);
  EXPECT_THAT(database.check(), testing::IsEmpty());
}

}  // namespace
}  // namespace nestor
