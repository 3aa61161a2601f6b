// The tuning loop with a fake measurer: everything is stored, nothing is measured twice, and a search resumes.
#include "autotune/trial/statistics.h"
#include "autotune/trial/trial_steps.h"
#include "autotune/tuner.h"

#include "poly/nest/nest_json.h"
#include "support/codegen_revision.h"
#include "support/cuda/fake_cuda_use.h"
#include "support/error.h"
#include "support/launch_recipe.h"
#include "support/nests/sample_nests.h"
#include "support/nests/tensor_nests.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

namespace nestor {
namespace {

/// The database answers only with kernels it can serve.
KernelRecord servable_kernel(const std::string& code) {
  LaunchRecipe recipe;
  recipe.target = "host";
  recipe.symbol = "kernel";
  return {"x86-64:x86-64:", code, recipe_to_json(recipe).dump(), ""};
}

/// Times are a function of the steps; every third candidate fails in some way.
class FakeMeasurer : public Measurer {
 public:
  FakeMeasurer() {
    device_.kind = "host";
    device_.name = "fake CPU";
    device_.arch = "fake";
    device_.units = 2;
    device_.details = "{}";
  }
  int batch_size() const override { return 2; }
  std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override {
    std::vector<TrialOutcome> outcomes;
    for (const TrialJob& job : jobs) outcomes.push_back(measure_one(job));
    return outcomes;
  }
  const DeviceIdentity& device() const override { return device_; }
  void is_machine(const std::string& serial) { device_.details = R"({"serial":")" + serial + R"("})"; }
  std::string toolchain() const override { return "fake 1"; }

  std::multiset<std::string> measured;
  std::map<double, std::string> times;  ///< of correct candidates
  std::set<std::string> completed;      ///< those that were not stopped; a suspiciously wide win is measured twice, and is one
  std::vector<double> races;            ///< best_ms as the jobs had it
  std::atomic<bool>* stop = nullptr;    ///< set when one more than `stop_after` candidates is to be measured
  std::size_t stop_after = 0;
  std::map<std::string, TrialOutcome> scripted;  ///< by the steps in words: what comes of them instead, once
  bool all_lost = false;                         ///< everything is ended from outside

 private:
  TrialOutcome measure_one(const TrialJob& job) {
    std::string text;
    std::uint64_t hash = 7;
    for (const Step& step : job.steps) text += describe(step) + "; ";
    for (const char c : text) hash = hash * 131 + static_cast<unsigned char>(c);
    measured.insert(text);
    races.push_back(job.best_ms);
    TrialOutcome outcome;
    if (stop && completed.size() == stop_after && completed.count(text) == 0) {
      *stop = true;
      return stopped_outcome();
    }
    completed.insert(text);
    if (all_lost) return outside_outcome("worker killed by signal 9 (Killed) while running, 3 times");
    if (const auto found = scripted.find(text); found != scripted.end()) {
      outcome = found->second;
      scripted.erase(found);
      return outcome;
    }
    constexpr TrialStatus kFailures[] = {TrialStatus::crash, TrialStatus::timeout, TrialStatus::wrong,
                                         TrialStatus::compile_error};
    if (measured.size() > 2 && hash % 3 == 0) {
      outcome.status = kFailures[hash / 3 % 4];
      outcome.reason = "as the script says";
      return outcome;
    }
    outcome.status = TrialStatus::ok;
    outcome.median_ms = 1 + static_cast<double>(hash % 1000) / 100;
    outcome.samples_ms = {outcome.median_ms};
    outcome.kernel = servable_kernel("code " + text);
    times.emplace(outcome.median_ms, text);
    return outcome;
  }
  DeviceIdentity device_;
};

class Tuner : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("nestor_tuner_" + std::to_string(getpid()) + "_" +
                                                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  TuneRequest request(std::shared_ptr<Measurer> measurer, int trials) const {
    TuneRequest request;
    request.nest = samples::matmul();
    request.max_trials = trials;
    request.time_budget_s = 600;
    request.database = (folder_ / "tuning.db").string();
    request.measurer = std::move(measurer);
    request.measure.threads = 2;
    return request;
  }
  std::vector<TrialRecord> stored(const FakeMeasurer& measurer) const {
    const Database database = Database::open((folder_ / "tuning.db").string());
    return database.trials(measurer.device(), problem_key(samples::matmul(), {}));
  }

  std::filesystem::path folder_;
};

TEST_F(Tuner, StoresEveryTrialWithItsStatus) {
  const auto measurer = std::make_shared<FakeMeasurer>();
  const TuneResult result = tune(request(measurer, 30));
  const auto rows = stored(*measurer);
  ASSERT_EQ(static_cast<int>(rows.size()), result.trials);
  EXPECT_EQ(result.trials, 30);
  std::map<TrialStatus, int> counts;
  for (const TrialRecord& row : rows) {
    ++counts[row.status];
    EXPECT_EQ(row.status == TrialStatus::ok, row.reason.empty());
  }
  EXPECT_EQ(counts, result.counts);
  EXPECT_GT(counts[TrialStatus::ok], 0);
  EXPECT_GT(counts.size(), 1u);
  EXPECT_GT(result.baseline_ms, 0);
  ASSERT_TRUE(result.best.has_value());
  for (const TrialRecord& row : rows) {
    if (row.status == TrialStatus::ok) {
      EXPECT_LE(result.best->median_ms, row.median_ms);
    }
  }
}

TEST_F(Tuner, TheStartingPointIsNeverCutEarlyAndOthersRaceTheBest) {
  const auto measurer = std::make_shared<FakeMeasurer>();
  std::vector<double> best_seen;
  TuneRequest asked = request(measurer, 12);
  asked.progress = [&](const TuneProgress& progress) {
    EXPECT_EQ(progress.trials, static_cast<int>(best_seen.size()) + 1);
    best_seen.push_back(progress.best_ms);
    ASSERT_NE(progress.last, nullptr);
  };
  tune(asked);
  EXPECT_EQ(best_seen.size(), 12u);
  EXPECT_EQ(measurer->races.front(), 0);
  EXPECT_GT(measurer->races.back(), 0);
}

TEST_F(Tuner, TriesOneCandidateWhereTheTimeIsOverBeforeTheFirst) {
  TuneRequest hurried = request(std::make_shared<FakeMeasurer>(), 30);
  hurried.time_budget_s = 1e-9;
  EXPECT_EQ(tune(hurried).trials, 1);
}

TEST_F(Tuner, TriesMoreWhereTheTimeIsOverAndTheFirstWasRefused) {
  class Refusing : public FakeMeasurer {
   public:
    std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override {
      if (--refusals < 0) return FakeMeasurer::measure(jobs);
      return std::vector<TrialOutcome>(jobs.size(), failed_outcome(TrialStatus::infeasible, "does not fit"));
    }
    int refusals = 2;
  };
  const auto measurer = std::make_shared<Refusing>();
  TuneRequest hurried = request(measurer, 30);
  hurried.time_budget_s = 1e-9;
  const TuneResult result = tune(hurried);
  EXPECT_TRUE(result.best.has_value());
  EXPECT_EQ(result.trials, 5) << "one, and two batches, of which the last is correct";

  measurer->refusals = 1000;
  hurried.database = (folder_ / "refused.db").string();
  EXPECT_EQ(tune(hurried).trials, 24) << "and some are enough";
}

/// All that many workers had at once is refused, or wrong, when the time is over.
TEST_F(Tuner, TriesMoreWhereTheTimeIsOverAndAllUnderWayWasRefused) {
  class Streaming : public FakeMeasurer {
   public:
    int batch_size() const override { return 16; }
    bool streaming() const override { return true; }
    void submit(std::int64_t ticket, const TrialJob& job) override { jobs.emplace_back(ticket, job); }
    SettledTrial next() override {
      const auto [ticket, job] = jobs.front();
      jobs.pop_front();
      return {ticket, ++settled <= 16 ? failed_outcome(status, "as the script says") : FakeMeasurer::measure({job}).at(0)};
    }
    std::deque<std::pair<std::int64_t, TrialJob>> jobs;
    TrialStatus status = TrialStatus::infeasible;
    int settled = 0;
  };
  for (const TrialStatus status : {TrialStatus::infeasible, TrialStatus::wrong}) {
    const auto measurer = std::make_shared<Streaming>();
    measurer->status = status;
    TuneRequest hurried = request(measurer, 40);
    hurried.time_budget_s = 1e-9;
    hurried.database = (folder_ / (std::string(to_string(status)) + ".db")).string();
    const TuneResult result = tune(hurried);
    EXPECT_TRUE(result.best.has_value()) << to_string(status);
    EXPECT_GT(result.trials, 16);
    EXPECT_LE(result.trials, 24) << "and some are enough";
  }
}

/// Nothing on tensor cores is of use: it is refused, or runs too long.
class WithoutTensorCores : public FakeMeasurer {
 public:
  explicit WithoutTensorCores(TrialStatus status) : status_(status) {}
  std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override {
    std::vector<TrialOutcome> outcomes;
    for (const TrialJob& job : jobs) {
      const bool tensor = std::any_of(job.steps.begin(), job.steps.end(), [](const Step& s) { return s.name == "tensor_cores"; });
      outcomes.push_back(tensor ? failed_outcome(status_, "as the script says") : FakeMeasurer::measure({job}).at(0));
      tried_on_tensor_cores += tensor ? 1 : 0;
    }
    return outcomes;
  }
  int tried_on_tensor_cores = 0;

 private:
  TrialStatus status_;
};

TEST_F(Tuner, FindsAKernelWhereEveryLikelyOneIsRefusedForTheSame) {
  for (const auto& [status, most] : {std::pair(TrialStatus::infeasible, 6), std::pair(TrialStatus::timeout, 3)}) {
    const auto measurer = std::make_shared<WithoutTensorCores>(status);
    testing::use_fake_cuda();
    TuneRequest hurried = request(measurer, 30);
    hurried.nest = testing::attention_nest();
    hurried.measure.target = target_from("cuda");
    hurried.time_budget_s = 1e-9;
    hurried.database = (folder_ / (std::string(to_string(status)) + ".db")).string();
    const TuneResult result = tune(hurried);
    EXPECT_TRUE(result.best.has_value());
    EXPECT_GT(measurer->tried_on_tensor_cores, 0);
    EXPECT_LE(measurer->tried_on_tensor_cores, most) << "some were under way";
  }
}

TEST_F(Tuner, WaitsForACorrectCandidateUnderWayWhenTheTimeIsOver) {
  class Slow : public FakeMeasurer {
   public:
    int batch_size() const override { return 3; }
    bool streaming() const override { return true; }
    void submit(std::int64_t ticket, const TrialJob& job) override { jobs.emplace_back(ticket, job); }
    SettledTrial next() override {
      const auto [ticket, job] = jobs.back();
      jobs.pop_back();
      if (given_up) return {ticket, stopped_outcome()};
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // longer than the budget
      if (!refused) return {ticket, measure({job}).at(0)};
      refused = false;
      return {ticket, failed_outcome(TrialStatus::infeasible, "does not fit")};
    }
    void abandon() override { given_up = true; }
    std::vector<std::pair<std::int64_t, TrialJob>> jobs;
    bool refused = true, given_up = false;
  };
  TuneRequest hurried = request(std::make_shared<Slow>(), 30);
  hurried.time_budget_s = 0.1;
  const TuneResult result = tune(hurried);
  EXPECT_TRUE(result.best.has_value());
  EXPECT_EQ(result.trials, 2) << "the third one is given up";
}

TEST_F(Tuner, ResumesWithoutMeasuringAnythingAgain) {
  const auto first = std::make_shared<FakeMeasurer>();
  const TuneResult before = tune(request(first, 15));
  const auto second = std::make_shared<FakeMeasurer>();
  const TuneResult after = tune(request(second, 15));
  EXPECT_EQ(after.known, before.trials);
  EXPECT_EQ(after.baseline_ms, before.baseline_ms);
  EXPECT_LE(after.best->median_ms, before.best->median_ms);
  for (const std::string& steps : second->measured) EXPECT_EQ(first->measured.count(steps), 0u) << steps;
}

/// All records of the database, signed by nobody; `drop`: keys that the lines lose.
std::string unsigned_records(const std::string& path, const std::vector<std::string>& drop) {
  std::stringstream lines;
  Database::open(path).export_records(lines);
  std::string altered;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json record = nlohmann::json::parse(line);
    record.erase("signature");
    for (const std::string& key : drop) record.erase(key);
    altered += record.dump() + "\n";
  }
  return altered;
}

TEST_F(Tuner, MeasuresAgainWhatAnotherRevisionMeasuredTheFastestFirst) {
  const auto first = std::make_shared<FakeMeasurer>();
  const TuneResult before = tune(request(first, 20));
  const std::string path = (folder_ / "tuning.db").string();
  std::istringstream in(unsigned_records(path, {"revision", "checked"}));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(Database::open(path).import_records(in).added, 20);
  Database::open(path).sign_all();

  const auto second = std::make_shared<FakeMeasurer>();
  const TuneResult after = tune(request(second, 1));
  EXPECT_EQ(after.known, 0);
  ASSERT_FALSE(first->times.empty());
  EXPECT_EQ(*second->measured.begin(), first->times.begin()->second);
  ASSERT_TRUE(after.best.has_value()) << "only what is measured today is served";
  EXPECT_EQ(after.best->revision, kCodegenRevisions.of(second->device().kind));
  EXPECT_EQ(after.best->median_ms, before.best->median_ms);
}

TEST_F(Tuner, MeasuresAgainWhatNobodyTrustedVouchesFor) {
  const auto first = std::make_shared<FakeMeasurer>();
  const TuneResult before = tune(request(first, 20));
  const std::string path = (folder_ / "tuning.db").string();
  std::istringstream in(unsigned_records(path, {}));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  ASSERT_EQ(Database::open(path).import_records(in).added, 20);
  const auto second = std::make_shared<FakeMeasurer>();
  const TuneResult after = tune(request(second, 1));
  EXPECT_EQ(after.known, 0) << "their times may be untrue";
  ASSERT_TRUE(after.best.has_value());
  EXPECT_EQ(after.best->median_ms, before.best->median_ms) << "the fastest of them was tried first";
}

TEST_F(Tuner, NamesACandidateWithAWrongResult) {
  const auto measurer = std::make_shared<FakeMeasurer>();
  const TuneResult result = tune(request(measurer, 30));
  std::int64_t first = 0;
  for (const TrialRecord& row : stored(*measurer)) {
    EXPECT_EQ(row.checked, row.status == TrialStatus::ok ? kCodegenRevisions.of(measurer->device().kind) : 0);
    if (row.status == TrialStatus::wrong && (first == 0 || row.id < first)) first = row.id;
  }
  ASSERT_NE(first, 0) << "the script has wrong ones";
  EXPECT_EQ(result.wrong_trial, first);
}

TEST_F(Tuner, StartsWithWhatWasBestForOtherSizes) {
  const auto first = std::make_shared<FakeMeasurer>();
  tune(request(first, 40));
  const auto second = std::make_shared<FakeMeasurer>();
  TuneRequest other = request(second, 1);
  for (const SizeParam& size : other.nest.sizes) other.sizes[size.name] = 2 * size.default_value;
  tune(other);
  ASSERT_FALSE(first->times.empty());
  EXPECT_EQ(second->measured.count(first->times.begin()->second), 1u) << *second->measured.begin();
}

TEST_F(Tuner, StartsWithWhatWasBestForAnotherOperatorWithSuchSizes) {
  const auto first = std::make_shared<FakeMeasurer>();
  tune(request(first, 40));
  const auto second = std::make_shared<FakeMeasurer>();
  TuneRequest other = request(second, 1);
  other.nest.op = "another_matmul";
  tune(other);
  ASSERT_FALSE(first->times.empty());
  EXPECT_EQ(second->measured.count(first->times.begin()->second), 1u) << *second->measured.begin();
}

TEST_F(Tuner, TheStopFlagKeepsWhatWasMeasured) {
  std::atomic<bool> stop{false};
  const auto measurer = std::make_shared<FakeMeasurer>();
  measurer->stop = &stop;
  measurer->stop_after = 5;
  TuneRequest asked = request(measurer, 100);
  asked.stop = &stop;
  const TuneResult result = tune(asked);
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(measurer->completed.size(), 5u);
  EXPECT_EQ(result.trials, 5);
  EXPECT_EQ(stored(*measurer).size(), 5u);
}

TEST_F(Tuner, EqualSeedsMeasureEqualCandidates) {
  const auto first = std::make_shared<FakeMeasurer>(), second = std::make_shared<FakeMeasurer>();
  tune(request(first, 20));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  tune(request(second, 20));
  EXPECT_EQ(first->measured, second->measured);
}

TEST_F(Tuner, StoredStepsReplayOnTheNestAsDefined) {
  const auto measurer = std::make_shared<FakeMeasurer>();
  tune(request(measurer, 4));
  const Nest nest = samples::matmul();
  int replayed = 0;
  for (const TrialRecord& row : stored(*measurer)) {
    const nlohmann::json json = nlohmann::json::parse(row.steps);
    EXPECT_TRUE(json.contains("parameters"));
    const Schedule schedule = replay_trial_steps(nest, {}, json);
    EXPECT_EQ(schedule.steps().size(), json.at("steps").size());
    ++replayed;
  }
  EXPECT_GT(replayed, 0);
}

TEST_F(Tuner, AWideWinIsMeasuredTwice) {
  class Lucky : public FakeMeasurer {
   public:
    std::vector<TrialOutcome> measure(const std::vector<TrialJob>& jobs) override {
      auto outcomes = FakeMeasurer::measure(jobs);
      for (auto& outcome : outcomes) {
        ++count;
        outcome.status = TrialStatus::ok;
        outcome.reason.clear();
        outcome.kernel = servable_kernel("code");
        // The third measurement is impossibly fast, its repetition is not.
        outcome.median_ms = count == 3 ? 0.001 : 10.0 + count;
        outcome.samples_ms = {outcome.median_ms};
      }
      return outcomes;
    }
    int count = 0;
  };
  const auto measurer = std::make_shared<Lucky>();
  const TuneResult result = tune(request(measurer, 5));
  EXPECT_EQ(measurer->count, 6);
  EXPECT_EQ(result.best->median_ms, 11.0);
}

TEST_F(Tuner, OutcomesThatComeInAnyOrderFindTheirCandidates) {
  class Streaming : public FakeMeasurer {
   public:
    int batch_size() const override { return 5; }
    bool streaming() const override { return true; }
    void submit(std::int64_t ticket, const TrialJob& job) override {
      jobs.emplace_back(ticket, job);
      most = std::max(most, jobs.size());
    }
    SettledTrial next() override {
      // The last one first, and then the first one, and so on.
      const auto at = turn++ % 2 == 0 ? jobs.end() - 1 : jobs.begin();
      const auto [ticket, job] = *at;
      jobs.erase(at);
      std::string text;
      for (const Step& step : job.steps) text += describe(step) + "; ";
      TrialOutcome outcome = measure({job}).at(0);
      medians[text] = outcome.median_ms;
      return {ticket, std::move(outcome)};
    }
    std::vector<std::pair<std::int64_t, TrialJob>> jobs;
    std::map<std::string, double> medians;
    std::size_t most = 0;
    int turn = 0;
  };
  const auto measurer = std::make_shared<Streaming>();
  const TuneResult result = tune(request(measurer, 14));
  EXPECT_EQ(result.trials, 14);
  EXPECT_EQ(measurer->most, 5u);
  EXPECT_TRUE(measurer->jobs.empty());
  const auto rows = stored(*measurer);
  ASSERT_EQ(rows.size(), 14u);
  for (const TrialRecord& row : rows) {
    std::string text;
    const nlohmann::json json = nlohmann::json::parse(row.steps);
    for (const auto& step : json.at("steps")) text += describe(step_from_json(step)) + "; ";
    ASSERT_EQ(measurer->medians.count(text), 1u);
    if (row.status == TrialStatus::ok) {
      EXPECT_GE(row.median_ms, measurer->medians.at(text));
    }
  }
}

TEST(TrialSteps, AScheduleOfAnotherNestIsRefused) {
  const Nest matmul = samples::matmul();
  const Nest norm = samples::row_norm();
  const auto json = trial_steps_json(matmul, {}, {});
  EXPECT_EQ(replay_trial_steps(matmul, {}, json).steps().size(), 0u);
  try {
    replay_trial_steps(norm, {}, json);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(digest(matmul)), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("row_norm"), std::string::npos);
  }
}

TEST(TrialSteps, FilesThatDoNotSayWhatWasFixedReplayOnEitherForm) {
  const Nest nest = samples::matmul();
  const Sizes sizes = complete_sizes(nest, {});
  for (const bool all : {false, true}) {
    const Schedule schedule(nest_for_tuning(nest, sizes, all));
    EXPECT_EQ(digest(replay_trial_steps(nest, sizes, schedule_to_json(schedule)).original_nest()),
              digest(schedule.original_nest()));
  }
}

TEST(Median, IsTheMiddleOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3}), 3);
  EXPECT_EQ(median({9, 1, 5}), 5);
  EXPECT_EQ(median({4, 1, 2, 100}), 3);
}

TEST_F(Tuner, WhatEndsFromOutsideIsNotStoredAndTheNextRunTriesIt) {
  const auto killed = std::make_shared<FakeMeasurer>();
  killed->all_lost = true;
  TuneRequest asked = request(killed, 10);
  asked.time_budget_s = 2;
  const TuneResult lost = tune(asked);
  EXPECT_GT(lost.lost, 0);
  EXPECT_EQ(lost.trials, 0);
  EXPECT_TRUE(stored(*killed).empty());
  const auto measurer = std::make_shared<FakeMeasurer>();
  const TuneResult result = tune(request(measurer, 10));
  EXPECT_EQ(result.known, 0);
  EXPECT_EQ(result.lost, 0);
  EXPECT_GT(result.baseline_ms, 0);
}

/// The starting point is tried among the first, and in words it is that.
std::string baseline_of(const FakeMeasurer& measurer, const TuneResult& result) {
  const auto found = measurer.times.find(result.baseline_ms);
  return found == measurer.times.end() ? "" : found->second;
}

TEST_F(Tuner, ALossOfTheStartingPointIsRepaired) {
  const auto clean = std::make_shared<FakeMeasurer>();
  const std::string baseline = baseline_of(*clean, tune(request(clean, 12)));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  // In the same run.
  const auto unlucky = std::make_shared<FakeMeasurer>();
  unlucky->scripted[baseline] = outside_outcome("worker killed by signal 9 (Killed) while running, 3 times");
  EXPECT_GT(tune(request(unlucky, 12)).baseline_ms, 0);
  EXPECT_GE(unlucky->measured.count(baseline), 2u);
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directories(folder_);
  // In the next one, of what is stored as a crash.
  const auto crashed = std::make_shared<FakeMeasurer>();
  crashed->scripted[baseline] = failed_outcome(TrialStatus::crash, "worker killed by signal 9 (Killed) while running");
  EXPECT_EQ(tune(request(crashed, 12)).baseline_ms, 0);
  const auto next = std::make_shared<FakeMeasurer>();
  EXPECT_GT(tune(request(next, 4)).baseline_ms, 0);
  EXPECT_EQ(next->measured.count(baseline), 1u);
}

TEST_F(Tuner, CrashesThatAnOlderProgramStoredForKilledWorkersAreTriedAgain) {
  const auto first = std::make_shared<FakeMeasurer>();
  const TuneResult result = tune(request(first, 12));
  Database database = Database::open((folder_ / "tuning.db").string());
  int killed = 0;
  for (const TrialRecord& row : stored(*first)) killed += row.status == TrialStatus::crash ? 1 : 0;
  EXPECT_EQ(tune(request(std::make_shared<FakeMeasurer>(), 0)).known, result.trials);
  for (TrialRecord row : stored(*first)) {
    if (row.status != TrialStatus::ok) continue;
    row.status = TrialStatus::crash;
    row.reason = "worker killed by signal 15 (Terminated) while running";
    row.steps = R"({"nest":"x","fixed":{},"steps":[{"name":"split","args":["i",3,"a","b"]}]})";
    row.kernel.reset();
    row.median_ms = 0;
    database.add_trial(first->device(), result.problem, nest_to_json(samples::matmul()).dump(), row);
    break;
  }
  EXPECT_EQ(tune(request(std::make_shared<FakeMeasurer>(), 0)).known, result.trials);  // one more row, not one more known
}

TEST_F(Tuner, FailedCandidatesAreTriedAgainWhereThatIsAskedFor) {
  const auto first = std::make_shared<FakeMeasurer>();
  tune(request(first, 30));
  std::size_t failed = 0;
  for (const TrialRecord& row : stored(*first)) {
    failed += row.status == TrialStatus::crash || row.status == TrialStatus::timeout || row.status == TrialStatus::compile_error;
  }
  ASSERT_GT(failed, 0u);
  const auto again = std::make_shared<FakeMeasurer>();
  TuneRequest asked = request(again, static_cast<int>(failed));
  asked.retry_failed = true;
  tune(asked);
  for (const std::string& text : again->measured) EXPECT_EQ(first->measured.count(text) > 0, true) << text;
  const auto without = std::make_shared<FakeMeasurer>();
  tune(request(without, static_cast<int>(failed)));
  for (const std::string& text : without->measured) EXPECT_EQ(first->measured.count(text), 0u) << text;
}

TEST_F(Tuner, WhatAnotherDeviceOfTheModelMeasuredIsTriedFirstAndNotBelieved) {
  const auto other = std::make_shared<FakeMeasurer>(), here = std::make_shared<FakeMeasurer>();
  other->is_machine("A");
  here->is_machine("B");
  tune(request(other, 20));
  const TuneResult result = tune(request(here, 5));
  EXPECT_EQ(result.known, 0);
  EXPECT_EQ(result.trials, 5);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_TRUE(result.best->own_device);
  EXPECT_TRUE(here->measured.contains(other->times.begin()->second)) << "the fastest of the other";
}

TEST_F(Tuner, FinalistsAreTheFastestOfOtherDevicesAndNothingElse) {
  const auto other = std::make_shared<FakeMeasurer>(), here = std::make_shared<FakeMeasurer>();
  other->is_machine("A");
  here->is_machine("B");
  tune(request(other, 30));
  TuneRequest race = request(here, 30);
  race.finalists = 3;
  const TuneResult result = tune(race);
  EXPECT_EQ(result.trials, 3);
  std::set<std::string> fastest;
  for (const auto& [ms, steps] : other->times) {
    if (fastest.size() < 3) fastest.insert(steps);
  }
  EXPECT_EQ(std::set<std::string>(here->measured.begin(), here->measured.end()), fastest);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_TRUE(result.best->own_device);
  EXPECT_EQ(tune(race).trials, 3) << "the next three: those are measured";
  race.finalists = -1;
  EXPECT_THROW(tune(race), UserError);
}

TEST_F(Tuner, TrialsOfEarlierRunsCountWhereThatIsAskedFor) {
  const auto measurer = std::make_shared<FakeMeasurer>();
  tune(request(measurer, 4));
  TuneRequest more = request(measurer, 10);
  more.count_known = true;
  EXPECT_EQ(tune(more).trials, 6);
  EXPECT_EQ(tune(more).trials, 0);
}

}  // namespace
}  // namespace nestor
