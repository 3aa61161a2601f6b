// The main job, through the program alone: tune, ask, measure again, verify, carry to another database.
#include "integration/run_nestor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace nestor::test {
namespace {

using testing::HasSubstr;

constexpr const char* kRows = "--sizes=rows=96,width=128";

class EndToEnd : public testing::Test {
 protected:
  static nlohmann::json json_of(const Outcome& outcome) { return nlohmann::json::parse(outcome.out); }

  Outcome tune(const std::string& trials) const {
    return run_nestor(
        {"--json", "tune", "layernorm", kRows, "--trials", trials, "--time", "120", "--seed", "3", "--db", database()});
  }
  std::string database() const { return folder_.file("tuning.db"); }

  TemporaryFolder folder_;
};

TEST_F(EndToEnd, TuneQueryBenchVerifyExportImport) {
  const Outcome tuned = tune("6");
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const nlohmann::json result = json_of(tuned);
  ASSERT_FALSE(result.at("best").is_null());
  EXPECT_EQ(result.at("trials"), 6);
  EXPECT_LE(result.at("best").at("median_ms").get<double>(), result.at("baseline_ms").get<double>());
  const std::string best = std::to_string(result.at("best").at("id").get<int>());

  const Outcome exact = run_nestor({"--json", "query", "layernorm", kRows, "--db", database()});
  ASSERT_EQ(exact.code, 0) << exact.err;
  EXPECT_EQ(json_of(exact).at("match"), "exact");
  EXPECT_EQ(json_of(exact).at("trial").at("id"), result.at("best").at("id"));

  const Outcome near = run_nestor({"--json", "query", "layernorm", "--rows", "100", "--width", "128", "--db", database()});
  ASSERT_EQ(near.code, 0) << near.err;
  EXPECT_EQ(json_of(near).at("match"), "nearest");
  EXPECT_GT(json_of(near).at("distance").get<double>(), 0);

  const Outcome bench = run_nestor({"--json", "bench", "layernorm", kRows, "--rounds", "1", "--db", database()});
  ASSERT_EQ(bench.code, 0) << bench.err;
  for (const char* contender : {"original", "parallel", "best"})
    EXPECT_GT(json_of(bench).at(contender).at("median_ms").get<double>(), 0);

  const Outcome verified = run_nestor({"--json", "verify", best, "--db", database()});
  ASSERT_EQ(verified.code, 0) << verified.out << verified.err;
  EXPECT_TRUE(json_of(verified).at("passed"));
  EXPECT_FALSE(json_of(verified).at("certificate").at("dependences").empty());

  ASSERT_EQ(run_nestor({"db", "export", folder_.file("all.jsonl"), "--db", database()}).code, 0);
  const std::string other = folder_.file("other.db");
  const Outcome imported = run_nestor({"--json", "db", "import", folder_.file("all.jsonl"), "--db", other});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_GE(json_of(imported).at("added").get<int>(), 6);
  EXPECT_EQ(run_nestor({"db", "check", "--db", other}).code, 0);
  EXPECT_EQ(json_of(run_nestor({"--json", "query", "layernorm", kRows, "--db", other})).at("match"), "exact");
}

TEST_F(EndToEnd, BenchMeasuresTheSchedulesOfFiles) {
  const auto write = [&](const std::string& name, const std::string& steps) {
    std::ofstream(folder_.file(name)) << steps;
    return folder_.file(name);
  };
  const std::string original = write("original.steps", "# as defined\n"), parallel = write("parallel.steps", "parallel out.i\n");
  const Outcome bench = run_nestor(
      {"--json", "bench", "layernorm", kRows, "--rounds", "1", "--db", database(), "--steps", original, "--steps", parallel});
  ASSERT_EQ(bench.code, 0) << bench.err;
  const nlohmann::json schedules = json_of(bench).at("schedules");
  ASSERT_EQ(schedules.size(), 2u);
  EXPECT_EQ(schedules[1].at("name"), parallel);
  for (const nlohmann::json& schedule : schedules) EXPECT_GT(schedule.at("median_ms").get<double>(), 0) << schedule;

  const std::string illegal = write("illegal.steps", "parallel out.z\n");
  const Outcome refused = run_nestor({"bench", "layernorm", kRows, "--db", database(), "--steps", original, "--steps", illegal});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("illegal.steps"), HasSubstr("out.z")));
}

TEST_F(EndToEnd, TheSameCommandGoesOnFromWhatIsKnown) {
  ASSERT_EQ(tune("3").code, 0);
  const Outcome again = tune("3");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_GE(json_of(again).at("known").get<int>(), 3);
}

TEST_F(EndToEnd, AnInterruptKeepsWhatWasMeasured) {
  const Outcome stopped =
      run_nestor({"--json", "tune", "layernorm", kRows, "--trials", "100000", "--time", "300", "--db", database()}, "",
                 "timeout --signal=INT 6");  // signals the program and then its group: one interrupt must not count as two
  // `timeout` reports 124 for the signal it sent; the program itself ends with 130, printed results and stored rows.
  EXPECT_THAT(stopped.code, testing::AnyOf(124, 130));
  EXPECT_TRUE(json_of(stopped).at("stopped"));
  const nlohmann::json summary = json_of(run_nestor({"--json", "db", "summary", "--db", database()}));
  ASSERT_EQ(summary.size(), 1U);
  EXPECT_GE(summary.at(0).at("trials").get<int>(), json_of(stopped).at("trials").get<int>());
}

TEST_F(EndToEnd, AQueryOfNothingHasItsOwnExitCode) {
  ASSERT_EQ(run_nestor({"db", "prune", "--db", database()}).code, 0);
  const Outcome outcome = run_nestor({"query", "layernorm", kRows, "--db", database()});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("nestor tune layernorm"));
}

TEST_F(EndToEnd, SizesMayComeBeforeTheOperator) {
  const Outcome outcome = run_nestor({"show", "--rows", "4", "--sizes", "width=8", "layernorm", "--as", "loops"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[0, 8)"));
}

TEST_F(EndToEnd, PeopleGetTheWholeStory) {
  const Outcome tuned = run_nestor({"tune", "layernorm", kRows, "--trials", "2", "--time", "120", "--db", database()});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  for (const char* part : {"start ", "best ", "schedule", "stored ", "nestor query layernorm", "nestor verify"}) {
    EXPECT_THAT(tuned.out, HasSubstr(part));
  }
}

}  // namespace
}  // namespace nestor::test
