// Processes that somebody stops (SIGSTOP) hold neither the end of a run's time nor SIGTERM, and nothing is lost.
#include "integration/running_nestor.h"
#include "support/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nestor::test {
namespace {

constexpr int kInterrupted = 130;

class StoppedProcesses : public ::testing::Test {
 protected:
  std::string database() const { return folder_.file("stopped.db"); }
  std::string log() const { return folder_.file("log"); }
  std::vector<std::string> tune(const std::vector<std::string>& problem, const std::string& time) const {
    std::vector<std::string> args{"tune", "--target", "host", "--db", database(), "--time", time, "--threads", "1"};
    args.insert(args.begin() + 1, problem.begin(), problem.end());
    return args;
  }
  /// Trials of softmax, one after the other.
  std::vector<std::string> quick(const std::string& time) const {
    return tune({"softmax", "--rows", "64", "--width", "256"}, time);
  }
  /// Forks evaluators of the definition for seconds, before anything is measured.
  std::vector<std::string> slow_oracle() const { return tune({"matmul", "--m", "2048", "--n", "2048", "--k", "8192"}, "60"); }
  std::int64_t trials() const {
    const Outcome found = run_nestor({"--json", "db", "summary", "--db", database()});
    if (found.code != 0) return 0;
    std::int64_t count = 0;
    for (const auto& row : nlohmann::json::parse(found.out)) count += row.at("trials").get<std::int64_t>();
    return count;
  }
  bool has_trials() const { return std::filesystem::exists(database()) && trials() > 0; }
  /// What was told of is there, the file is sound, and nobody is left.
  void expect_whole(std::int64_t least) const {
    EXPECT_GE(trials(), least);
    if (std::filesystem::exists(database())) {
      EXPECT_EQ(run_nestor({"db", "check", "--db", database()}).code, 0);
    }
    EXPECT_TRUE(within(2, [&] { return processes_with(database()).empty(); })) << "a process outlived its run";
  }
  static std::vector<pid_t> stop_all(const RunningNestor& run) {
    std::vector<pid_t> stopped = run.children();
    for (const pid_t child : stopped) kill(child, SIGSTOP);
    return stopped;
  }
  TemporaryFolder folder_;
};

TEST_F(StoppedProcesses, WorkersDoNotHoldTheTerminationOfARun) {
  RunningNestor run(quick("120"), log());
  ASSERT_TRUE(within(60, [&] { return has_trials(); })) << read_whole(log());
  const std::int64_t before = trials();
  ASSERT_FALSE(stop_all(run).empty());
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(3), kInterrupted) << read_whole(log());
  expect_whole(before);
}

TEST_F(StoppedProcesses, WorkersDoNotHoldTheEndOfARunsTime) {
  std::vector<std::string> args = quick("4");
  args.insert(args.end(), {"--run-timeout", "2"});
  RunningNestor run(args, log());
  ASSERT_TRUE(within(60, [&] { return has_trials(); })) << read_whole(log());
  const std::int64_t before = trials();
  ASSERT_FALSE(stop_all(run).empty());
  EXPECT_EQ(run.wait(25), 0) << read_whole(log());
  expect_whole(before);
}

TEST_F(StoppedProcesses, EvaluatorsOfTheDefinitionDoNotHoldTheTerminationOfARun) {
  RunningNestor run(slow_oracle(), log());
  ASSERT_TRUE(within(60, [&] { return !stop_all(run).empty(); })) << read_whole(log());
  run.send(SIGTERM);
  EXPECT_EQ(run.wait(3), kInterrupted) << read_whole(log());
  expect_whole(0);
}

TEST_F(StoppedProcesses, ThoseThatGoOnAreNoFailures) {
  RunningNestor run(quick("4"), log());
  ASSERT_TRUE(within(60, [&] { return has_trials(); })) << read_whole(log());
  const std::vector<pid_t> stopped = stop_all(run);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  for (const pid_t child : stopped) kill(child, SIGCONT);
  EXPECT_EQ(run.wait(40), 0) << read_whole(log());
  const Outcome summary = run_nestor({"--json", "db", "summary", "--db", database()});
  for (const auto& row : nlohmann::json::parse(summary.out)) EXPECT_GT(row.at("ok").get<int>(), 0);
  expect_whole(1);
}

TEST_F(StoppedProcesses, ARunThatWasStoppedItselfGoesOn) {
  RunningNestor run(quick("5"), log());
  ASSERT_TRUE(within(60, [&] { return has_trials(); })) << read_whole(log());
  run.send(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  run.send(SIGCONT);
  EXPECT_EQ(run.wait(40), 0) << read_whole(log());
  expect_whole(1);
}

}  // namespace
}  // namespace nestor::test
