// `nestor db check --run`: records of another revision serve once they pass, and never when they fail.
#include "api/operators.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "integration/run_nestor.h"
#include "poly/nest/nest_json.h"
#include "support/codegen_revision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nestor::test {
namespace {

MeasureOptions one_thread() {
  MeasureOptions options;
  options.threads = 1;
  return options;
}

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CheckRecords : public testing::Test {
 protected:
  void SetUp() override {
    nest_ = load_operator("layernorm", "f32");
    sizes_ = complete_sizes(nest_, {{"rows", 5}, {"width", 16}});
    record_ = measure_schedule(Schedule(nest_for_tuning(nest_, sizes_)), nest_, sizes_, one_thread());
    ASSERT_EQ(record_.status, TrialStatus::ok) << record_.reason;
    record_.revision = record_.checked = 0;  // as older programs stored it
  }
  std::int64_t add(const TrialRecord& record) const {
    return Database::open(path_).add_trial(device_identity_host(1), problem_key(nest_, sizes_), nest_to_json(nest_).dump(),
                                           record);
  }
  Outcome nestor(std::vector<std::string> args) const {
    args.insert(args.end(), {"--db", path_});
    return run_nestor(args);
  }
  int query() const {
    return nestor({"query", "layernorm", "--rows", "5", "--width", "16", "--threads", "1", "--device", "host"}).code;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("records.db");
  Nest nest_;
  Sizes sizes_;
  TrialRecord record_;
};

TEST_F(CheckRecords, WhatPassesServes) {
  const std::int64_t id = add(record_);
  EXPECT_EQ(query(), 3);
  EXPECT_THAT(nestor({"query", "layernorm", "--rows", "5", "--width", "16"}).out, HasSubstr("1 kernel wait"));
  EXPECT_THAT(nestor({"db", "check"}).out, AllOf(HasSubstr("sound"), HasSubstr("nestor db check --run")));
  const Outcome checked = nestor({"--json", "db", "check", "--run", "--threads", "1", "--target", "host", "--jobs", "2"});
  ASSERT_EQ(checked.code, 0) << checked.out << checked.err;
  const nlohmann::json json = nlohmann::json::parse(checked.out);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0].at("trial"), id);
  EXPECT_EQ(json[0].at("result"), "passed");
  EXPECT_EQ(json[0].at("same_code"), true);
  EXPECT_EQ(query(), 0);
  EXPECT_EQ(Database::open(path_).trial(id)->revision, kCodegenRevisions.host) << "its steps give the stored code";
  EXPECT_THAT(nestor({"db", "check", "--run", "--target", "host"}).out, HasSubstr("0 kernels checked"));
}

TEST_F(CheckRecords, StoredCodeThatIsWrongIsFoundAndNeverServes) {
  // The code of another operator with the same arguments, as if the code generator had been wrong then.
  Nest other = nest_;
  for (Statement& statement : other.statements) {
    if (statement.write.tensor == "out")
      statement.value = ScalarExpr::make(ScalarOp::mul, {ScalarExpr::constant(2), statement.value});
  }
  const TrialRecord bad = measure_schedule(Schedule(nest_for_tuning(other, sizes_)), other, sizes_, one_thread());
  ASSERT_EQ(bad.status, TrialStatus::ok) << bad.reason;
  record_.kernel = bad.kernel;
  const std::int64_t id = add(record_);
  const Outcome checked = nestor({"db", "check", "--run", "--threads", "1", "--target", "host"});
  EXPECT_EQ(checked.code, 5);
  EXPECT_THAT(checked.out, AllOf(HasSubstr("failed"), HasSubstr("stored kernel against the oracle"), HasSubstr("1 failed")));
  EXPECT_EQ(query(), 3);
  EXPECT_EQ(Database::open(path_).trial(id)->status, TrialStatus::wrong);
  EXPECT_THAT(nestor({"db", "wrong"}).out, HasSubstr("layernorm"));
  // It is not asked again, not even with --all.
  EXPECT_THAT(nestor({"db", "check", "--run", "--all", "--target", "host"}).out, HasSubstr("0 kernels checked"));
}

TEST_F(CheckRecords, StepsThatAreRefusedTodayFail) {
  nlohmann::json steps = nlohmann::json::parse(record_.steps);
  steps["steps"].push_back({{"name", "vectorize"}, {"args", {"no_such_loop"}}});
  record_.steps = steps.dump();
  const std::int64_t id = add(record_);
  EXPECT_EQ(nestor({"db", "check", "--run", "--threads", "1", "--target", "host"}).code, 5);
  EXPECT_EQ(Database::open(path_).trial(id)->status, TrialStatus::illegal);
}

TEST_F(CheckRecords, OptionsWithoutRunAreRefused) {
  EXPECT_EQ(nestor({"db", "check", "--all"}).code, 1);
  EXPECT_EQ(nestor({"db", "check", "--jobs", "4"}).code, 1);
}

}  // namespace
}  // namespace nestor::test
