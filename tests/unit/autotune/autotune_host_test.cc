// Measuring on this machine, end to end: candidates compile in worker processes, are compared with the oracle and timed.
#include "autotune/host/guarded_buffer.h"
#include "autotune/measure_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/tuner.h"
#include "nestor/tune.h"
#include "poly/nest/nest_json.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace nestor {
namespace {

MeasureOptions quick() {
  MeasureOptions options;
  options.threads = 2;
  options.repetitions = 3;
  options.compile_timeout_s = options.run_timeout_s = 240;
  return options;
}

std::string scratch_database(const std::string& name) {
  const auto path = std::filesystem::temp_directory_path() / (name + std::to_string(getpid()) + ".db");
  std::filesystem::remove(path);
  return path.string();
}

TEST(HostMeasurer, OriginalOrderIsCorrectForEverySample) {
  for (const Nest& nest :
       {samples::matmul(33, 20, 17), samples::row_norm(9, 70), samples::scores_softmax_values(samples::Mask::none, 20, 24, 8),
        samples::scores_softmax_values(samples::Mask::domain, 20, 20, 8), samples::stencil2d(3, 17, 18),
        samples::seidel(3, 17, 18)}) {
    const Sizes sizes = complete_sizes(nest, {});
    const TrialRecord trial = measure_schedule(Schedule(nest_for_tuning(nest, sizes)), nest, sizes, quick());
    EXPECT_EQ(trial.status, TrialStatus::ok) << nest.op << ": " << trial.reason;
    EXPECT_EQ(trial.samples_ms.size(), 3u) << nest.op;
    EXPECT_LE(trial.max_error, 1) << nest.op;
    EXPECT_TRUE(trial.kernel.has_value()) << nest.op;
  }
}

TEST(HostMeasurer, AResultOutsideTheToleranceIsWrong) {
  Nest nest = samples::row_norm(9, 70);
  nest.tolerance = 0;  // single precision never meets this
  const Sizes sizes = complete_sizes(nest, {});
  const TrialRecord trial = measure_schedule(Schedule(nest), nest, sizes, quick());
  EXPECT_EQ(trial.status, TrialStatus::wrong);
  EXPECT_NE(trial.reason.find("should be"), std::string::npos) << trial.reason;
  EXPECT_FALSE(trial.kernel.has_value());
}

TEST(HostMeasurer, AnIllegalScheduleIsAnOutcome) {
  const Nest nest = samples::seidel(3, 17, 18);
  const Sizes sizes = complete_sizes(nest, {});
  const auto measurer = make_measurer({nest, sizes, {}, nest, digest(nest)}, quick());
  const auto outcomes = measurer->measure({{{Step{"parallel", {"sweep.y"}}}, 0, true}, {{}, 0, true}});
  EXPECT_EQ(outcomes.at(0).status, TrialStatus::illegal);
  EXPECT_NE(outcomes.at(0).reason.find("sweep"), std::string::npos);
  EXPECT_EQ(outcomes.at(1).status, TrialStatus::ok) << outcomes.at(1).reason;
}

TEST(HostMeasurer, ASlowCandidateIsCutEarly) {
  const Nest nest = samples::matmul(64, 64, 64);
  const auto measurer = make_measurer({nest, complete_sizes(nest, {}), {}, nest, digest(nest)}, quick());
  const auto outcome = measurer->measure({{{}, 1e-6, false}}).at(0);
  EXPECT_EQ(outcome.status, TrialStatus::slow);
  EXPECT_EQ(outcome.samples_ms.size(), 1u);
  EXPECT_GT(outcome.median_ms, 0);
}

TEST(HostMeasurer, ArgumentsAreGuarded) {
  GuardedBuffer buffer(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_TRUE(buffer.padding_intact());
  buffer.data()[100] = std::byte{0};
  EXPECT_FALSE(buffer.padding_intact());
  EXPECT_DEATH({ static_cast<volatile std::byte*>(buffer.data())[128] = std::byte{1}; }, "");
  buffer.make_read_only();
  EXPECT_DEATH({ static_cast<volatile std::byte*>(buffer.data())[0] = std::byte{1}; }, "");
}

TEST(TuneHost, FindsACorrectKernelAndRemembersIt) {
  const Nest nest = samples::row_norm(64, 256);
  TuneRequest request;
  request.nest = nest;
  request.max_trials = 5;
  request.time_budget_s = 240;
  request.measure = quick();
  request.database = scratch_database("nestor_tune_host");
  const TuneResult result = tune(request);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_GT(result.baseline_ms, 0);
  EXPECT_GT(result.first_correct_s, 0);
  const Database database = Database::open(request.database);
  const Match match = database.query(result.device, nest.op, nest.variant, digest(nest), complete_sizes(nest, {}));
  EXPECT_EQ(match.kind, MatchKind::exact);
  EXPECT_EQ(match.trial.id, result.best->id);
  // What was stored replays and is correct again.
  const Schedule schedule = replay_trial_steps(nest, {}, nlohmann::json::parse(result.best->steps));
  EXPECT_EQ(measure_schedule(schedule, nest, {}, quick()).status, TrialStatus::ok);
  std::filesystem::remove(request.database);
}

TEST(TuneHost, ThePublicCallReportsTheSame) {
  TuneOptions options;
  options.max_trials = 2;
  options.time_budget_s = 240;
  options.database = scratch_database("nestor_tune_api");
  int calls = 0;
  options.progress = [&](int, double, double) { ++calls; };
  const TuneReport report = tune_nest_json(nest_to_json(samples::row_norm(16, 64)).dump(), options);
  EXPECT_EQ(report.trials, 2);
  EXPECT_EQ(calls, 2);
  EXPECT_GT(report.best_ms, 0);
  EXPECT_GT(report.best_trial, 0);
  std::filesystem::remove(options.database);
}

}  // namespace
}  // namespace nestor
