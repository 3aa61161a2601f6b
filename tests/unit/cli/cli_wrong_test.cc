// Wrong results are bugs: `nestor db wrong` lists them, `nestor verify` replays one.
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "integration/run_nestor.h"
#include "poly/nest/nest_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "api/operators.h"
#include "support/codegen_revision.h"

namespace nestor::test {
namespace {

MeasureOptions on_one_thread() {
  MeasureOptions options;
  options.threads = 1;
  return options;
}

using testing::HasSubstr;

class WrongTrials : public testing::Test {
 protected:
  /// A correct trial of `layernorm`, and the same one stored as if its result had been wrong.
  void SetUp() override {
    const Nest nest = load_operator("layernorm", "f32");
    const Sizes sizes = complete_sizes(nest, {{"rows", 5}, {"width", 16}});
    Database database = Database::open(path_);
    TrialRecord record = measure_schedule(Schedule(nest_for_tuning(nest, sizes)), nest, sizes, on_one_thread());
    ASSERT_EQ(record.status, TrialStatus::ok) << record.reason;
    const auto add = [&](const TrialRecord& trial) {
      return database.add_trial(device_identity_host(1), problem_key(nest, sizes), nest_to_json(nest).dump(), trial);
    };
    add(record);
    record.status = TrialStatus::wrong;
    record.reason = "out[3, 2] is 7, expected 1";
    record.kernel.reset();
    record.certificate = {};
    wrong_ = add(record);
  }
  Outcome nestor(std::vector<std::string> args) const {
    args.insert(args.end(), {"--db", path_});
    return run_nestor(args);
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("wrong.db");
  std::int64_t wrong_ = 0;
};

TEST_F(WrongTrials, AreListedWithAllThatShowsThem) {
  const Outcome listed = nestor({"db", "wrong"});
  EXPECT_EQ(listed.code, 0) << listed.err;
  for (const std::string& part : std::vector<std::string>{std::to_string(wrong_), "layernorm (f32)", "rows=5", "out[3, 2] is 7",
                                                          "code revision", "1 trial with a wrong result", "nestor verify"})
    EXPECT_THAT(listed.out, HasSubstr(part));
  const nlohmann::json json = nlohmann::json::parse(nestor({"--json", "db", "wrong"}).out);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0].at("id"), wrong_);
  EXPECT_EQ(json[0].at("problem").at("sizes").at("width"), 16);
  EXPECT_EQ(json[0].at("revision"), kCodegenRevisions.host);
  EXPECT_EQ(json[0].at("reason"), "out[3, 2] is 7, expected 1");
  EXPECT_TRUE(json[0].at("schedule").contains("steps"));
  EXPECT_TRUE(json[0].at("device").contains("arch"));
}

TEST_F(WrongTrials, AreReplayedByVerify) {
  const Outcome verified = nestor({"verify", std::to_string(wrong_)});
  EXPECT_THAT(verified.out, HasSubstr("as it was measured: wrong by code revision"));
  EXPECT_THAT(verified.out, HasSubstr("compiled now"));
}

TEST_F(WrongTrials, AreShownWithoutTheirOperator) {
  const std::string trial = std::to_string(wrong_);
  const Outcome shown = nestor({"show", "--trial", trial, "--as", "nest"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("layernorm"));
  EXPECT_THAT(nestor({"show", "--trial", trial, "--variant", "f16"}).err, HasSubstr("has a variant and sizes of its own"));
  EXPECT_THAT(nestor({"show", "--trial", "999"}).err, HasSubstr("the database has no trial 999"));
  EXPECT_THAT(nestor({"show", "--best"}).err, HasSubstr("which operator?"));
}

TEST(NoWrongTrials, AreSaidToBeNone) {
  TemporaryFolder folder;
  const std::string path = folder.file("empty.db");
  Database::open(path);
  const Outcome listed = run_nestor({"db", "wrong", "--db", path});
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("no trial was wrong"));
  EXPECT_EQ(run_nestor({"--json", "db", "wrong", "--db", path}).out, "[]\n");
}

}  // namespace
}  // namespace nestor::test
