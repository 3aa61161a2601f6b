// Compiling and measuring processes: whatever a candidate does to them, each job gets its outcome and the others go on.
#include "autotune/workers/trial_pipeline.h"
#include "support/error.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

namespace nestor {
namespace {

/// Numbers that all processes of a test see.
struct Shared {
  std::atomic<int> compiled, compiling, devices_started, device_process, running, most_running, overlaps, kills;
};

Shared& shared() {
  static auto* memory =
      static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *memory;
}

void sleep_long() { std::this_thread::sleep_for(std::chrono::hours(1)); }

TrialOutcome outcome(TrialStatus status, std::string reason, double ms = 0) {
  TrialOutcome result;
  result.status = status;
  result.reason = std::move(reason);
  result.median_ms = ms;
  return result;
}

std::string compiled_code(const std::string& action) { return std::string("\0\xff", 2) + " code of " + action; }

/// Both do what the name of a job's only step says.
class ScriptedCompiler : public TrialCompiler {
 public:
  std::optional<TrialOutcome> compile(const TrialJob& job, CompiledTrial& compiled) override {
    const std::string action = job.steps.at(0).name;
    if (action == "illegal") throw UserError("split(i): no such loop");
    if (action == "bug") throw InternalError("op has no lowering");
    if (action == "hang_compiling") sleep_long();
    if (action == "exit_compiling") _exit(3);
    if (action == "killed_compiling" && shared().kills-- > 0) kill(getpid(), SIGKILL);
    if (action == "infeasible") return outcome(TrialStatus::infeasible, "too large");
    if (action == "memory") {
      std::vector<std::vector<char>> hoard;
      for (;;) hoard.emplace_back(std::size_t{64} << 20, 1);
    }
    ++shared().compiling;
    if (action == "lasting") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (shared().running > 0) ++shared().overlaps;
    --shared().compiling;
    ++shared().compiled;
    compiled.kernel = {"sm_90", compiled_code(action), "{}", ""};
    // More than a socket takes at once: nobody may wait for a device that is busy.
    compiled.binary = std::string(action == "large" ? 4 << 20 : 3, '\xee');
    compiled.report = R"({"ptxas":1})";
    compiled.compile_ms = 7;
    return std::nullopt;
  }
};

class ScriptedDevice : public TrialDevice {
 public:
  explicit ScriptedDevice(int number) : number_(number) {
    ++shared().devices_started;
    shared().device_process = static_cast<int>(getpid());
  }

  TrialOutcome run(const TrialJob& job, const CompiledTrial& compiled) override {
    const std::string action = job.steps.at(0).name;
    const int running = ++shared().running;
    shared().most_running = std::max(shared().most_running.load(), running);
    TrialOutcome result = act(action, job, compiled);
    if (shared().compiling > 0) ++shared().overlaps;
    --shared().running;
    return result;
  }
  bool usable() override { return usable_; }

 private:
  TrialOutcome act(const std::string& action, const TrialJob& job, const CompiledTrial& compiled) {
    if (action == "hang") sleep_long();
    if (action == "exit") _exit(4);
    if (action == "killed" && shared().kills-- > 0) kill(getpid(), SIGKILL);
    if (action == "terminated" && shared().kills-- > 0) kill(getpid(), SIGTERM);
    if (action == "abort") {
      (void)!write(STDERR_FILENO, "driver: fell over\n", 18);
      std::abort();
    }
    if (action == "fault") {
      // A page that faults; a null pointer would be undefined behaviour that the compiler may drop.
      auto* page = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      page[0] = 1;
    }
    if (action == "illegal_address") {
      usable_ = false;
      throw DeviceError("cuLaunchKernel failed: CUDA_ERROR_ILLEGAL_ADDRESS");
    }
    if (action == "launch_failure") throw DeviceError("cuLaunchKernel failed: CUDA_ERROR_INVALID_VALUE");
    if (action == "wrong") return outcome(TrialStatus::wrong, "y[0] is 1, should be 2");
    if (action == "slow") return outcome(TrialStatus::slow, "cut", 9);
    if (action == "remember") memory_ = 1;
    if (action == "lasting") std::this_thread::sleep_for(std::chrono::milliseconds(50));
    TrialOutcome result = outcome(TrialStatus::ok, "", 1.5 + number_);
    result.samples_ms = {job.best_ms, static_cast<double>(compiled.binary.size()), static_cast<double>(memory_)};
    return result;
  }
  int number_;
  int memory_ = 0;
  bool usable_ = true;
};

TrialJob job(const std::string& action, bool must_finish = false) { return {{Step{action, {1, "two"}}}, 0, must_finish}; }

class Pipeline : public ::testing::Test {
 protected:
  void SetUp() override {
    shared().compiled = shared().compiling = shared().devices_started = shared().running = shared().most_running = 0;
    shared().overlaps = 0;
  }

  /// `alternating`: as on the host.
  TrialPipeline make(double seconds = 60, int devices = 1, const std::atomic<bool>* stop = nullptr, bool alternating = false,
                     std::function<bool()> may_run = nullptr) {
    PipelineLimits limits;
    limits.compilers = 2;
    limits.devices = devices;
    limits.compile_timeout_s = limits.run_timeout_s = seconds;
    limits.memory_limit = std::int64_t{512} << 20;
    limits.alternating = alternating;
    limits.may_run = std::move(may_run);
    return TrialPipeline(
        limits, [] { return std::make_unique<ScriptedCompiler>(); },
        [](int number) { return std::make_unique<ScriptedDevice>(number); }, stop);
  }

  /// Hands all over at once; the outcomes in the order of the actions.
  static std::vector<TrialOutcome> run_all(TrialPipeline& pipeline, const std::vector<std::string>& actions) {
    for (std::size_t k = 0; k < actions.size(); ++k) pipeline.submit(static_cast<std::int64_t>(k), job(actions[k]));
    std::vector<TrialOutcome> outcomes(actions.size());
    std::set<std::int64_t> seen;
    for (std::size_t k = 0; k < actions.size(); ++k) {
      SettledTrial trial = pipeline.next();
      EXPECT_TRUE(seen.insert(trial.ticket).second);
      outcomes.at(static_cast<std::size_t>(trial.ticket)) = std::move(trial.outcome);
    }
    return outcomes;
  }
};

TEST_F(Pipeline, AGoodTrialComesBackWhole) {
  TrialPipeline pipeline = make();
  const TrialOutcome good = run_all(pipeline, {"good"}).at(0);
  EXPECT_EQ(good.status, TrialStatus::ok) << good.reason;
  EXPECT_EQ(good.median_ms, 1.5);
  EXPECT_EQ(good.compile_ms, 7);
  EXPECT_EQ(good.report, R"({"ptxas":1})");
  ASSERT_TRUE(good.kernel.has_value());
  EXPECT_EQ(good.kernel->code, compiled_code("good"));
  EXPECT_EQ(good.samples_ms.at(1), 3);  // the device got the binary
}

TEST_F(Pipeline, EveryWayToFailIsAnOutcomeAndTheOthersSucceed) {
  const std::map<std::string, TrialStatus> cases{{"illegal", TrialStatus::illegal},      {"bug", TrialStatus::wrong},
                                                 {"exit_compiling", TrialStatus::crash}, {"exit", TrialStatus::crash},
                                                 {"abort", TrialStatus::crash},          {"illegal_address", TrialStatus::crash},
                                                 {"wrong", TrialStatus::wrong},          {"infeasible", TrialStatus::infeasible},
                                                 {"launch_failure", TrialStatus::crash}, {"slow", TrialStatus::slow}};
  for (const bool alternating : {false, true}) {
    TrialPipeline pipeline = make(60, 1, nullptr, alternating);
    for (const auto& [action, status] : cases) {
      const auto outcomes = run_all(pipeline, {"good", action, "good", "good"});
      EXPECT_EQ(outcomes.at(1).status, status) << action;
      EXPECT_FALSE(outcomes.at(1).reason.empty()) << action;
      EXPECT_FALSE(outcomes.at(1).kernel.has_value()) << action;
      for (const std::size_t other : {0, 2, 3}) EXPECT_EQ(outcomes.at(other).status, TrialStatus::ok) << action;
    }
  }
}

TEST_F(Pipeline, AJobGoesToTheDeviceThatItIsMeantForAndSaysWhichOneMeasured) {
  TrialPipeline pipeline = make(60, 3);
  TrialJob meant = job("lasting");
  meant.device = 2;
  for (int k = 0; k < 4; ++k) pipeline.submit(k, meant);
  for (int k = 4; k < 8; ++k) pipeline.submit(k, job("lasting"));
  std::set<int> others;
  for (int k = 0; k < 8; ++k) {
    const SettledTrial trial = pipeline.next();
    EXPECT_EQ(trial.outcome.median_ms, 1.5 + trial.outcome.device);
    if (trial.ticket < 4) {
      EXPECT_EQ(trial.outcome.device, 2);
    } else {
      others.insert(trial.outcome.device);
    }
  }
  EXPECT_GT(others.size(), 1u) << "those that wait for one device do not keep others waiting";
}

TEST_F(Pipeline, NothingCompilesWhileAnythingRunsOnTheSameProcessors) {
  TrialPipeline pipeline = make(60, 1, nullptr, true);
  EXPECT_FALSE(pipeline.streaming());
  EXPECT_EQ(pipeline.depth(), 2);
  for (const TrialOutcome& lasting : run_all(pipeline, std::vector<std::string>(5, "lasting")))
    EXPECT_EQ(lasting.status, TrialStatus::ok) << lasting.reason;
  EXPECT_EQ(shared().overlaps, 0);
  EXPECT_EQ(shared().most_running, 1);
  // On a device of its own both go on at once: the counter can see it.
  TrialPipeline apart = make();
  EXPECT_TRUE(apart.streaming());
  run_all(apart, std::vector<std::string>(12, "lasting"));
  EXPECT_GT(shared().overlaps, 0);
}

TEST_F(Pipeline, WhatIsCompiledWaitsUntilItMayRun) {
  bool may = false;
  TrialPipeline pipeline = make(60, 1, nullptr, false, [&] { return may; });
  pipeline.submit(0, job("good"));
  pipeline.submit(1, job("infeasible"));
  EXPECT_EQ(pipeline.next().ticket, 1) << "it never runs";
  while (shared().compiled == 0) EXPECT_FALSE(pipeline.has_settled());
  for (int k = 0; k < 100; ++k) EXPECT_FALSE(pipeline.has_settled());
  may = true;
  while (!pipeline.has_settled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(pipeline.next().outcome.status, TrialStatus::ok);
  EXPECT_FALSE(pipeline.has_settled()) << "nothing is under way";
}

TEST_F(Pipeline, WhoAsksWhetherItMayRunMayThrow) {
  TrialPipeline pipeline = make(60, 1, nullptr, false, []() -> bool { throw UserError("the definition takes too long"); });
  EXPECT_THROW(run_all(pipeline, {"good"}), UserError);
}

TEST_F(Pipeline, AMemoryHogIsAnOutcome) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer reserves more than any limit";
#endif
  TrialPipeline pipeline = make();
  const auto outcomes = run_all(pipeline, {"memory", "good"});
  EXPECT_EQ(outcomes.at(0).status, TrialStatus::crash);
  EXPECT_EQ(outcomes.at(0).reason, "out of memory");
  EXPECT_EQ(outcomes.at(1).status, TrialStatus::ok);
}

TEST_F(Pipeline, AProcessKilledBetweenTwoJobsIsReplacedAndNoJobIsBlamed) {
  TrialPipeline pipeline = make();
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).status, TrialStatus::ok);
  kill(shared().device_process, SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const TrialOutcome next = run_all(pipeline, {"good"}).at(0);
  EXPECT_EQ(next.status, TrialStatus::ok) << next.reason;
  EXPECT_EQ(shared().devices_started, 2);
}

TEST_F(Pipeline, AJobWhoseProcessIsKilledFromOutsideIsTriedAgain) {
  for (const bool alternating : {false, true}) {
    for (const char* action : {"killed", "terminated", "killed_compiling"}) {
      TrialPipeline pipeline = make(60, 1, nullptr, alternating);
      shared().kills = 2;
      for (const TrialOutcome& good : run_all(pipeline, {"good", action, "good"}))
        EXPECT_EQ(good.status, TrialStatus::ok) << action << ": " << good.reason;
      EXPECT_LT(shared().kills, 0) << action;  // it came to its end
    }
  }
}

TEST_F(Pipeline, OneThatIsKilledAgainAndAgainHasNoVerdictAndTheOthersGoOn) {
  for (const char* action : {"killed", "killed_compiling"}) {
    TrialPipeline pipeline = make();
    shared().kills = 1000;
    const auto outcomes = run_all(pipeline, {"good", action, "good"});
    EXPECT_TRUE(outcomes.at(1).outside) << action;
    EXPECT_TRUE(ended_from_outside(outcomes.at(1).status, outcomes.at(1).reason)) << outcomes.at(1).reason;
    EXPECT_NE(outcomes.at(1).reason.find("signal 9"), std::string::npos) << outcomes.at(1).reason;
    EXPECT_NE(outcomes.at(1).reason.find("3 times"), std::string::npos) << outcomes.at(1).reason;
    EXPECT_EQ(outcomes.at(0).status, TrialStatus::ok);
    EXPECT_EQ(outcomes.at(2).status, TrialStatus::ok);
  }
}

TEST_F(Pipeline, WhenAllAreKilledInARowTheRunStopsAndSaysWhy) {
  TrialPipeline pipeline = make();
  shared().kills = 1000000;
  for (int k = 0; k < 8; ++k) pipeline.submit(k, job("killed"));
  std::string reason;
  try {
    for (int k = 0; k < 8; ++k) EXPECT_TRUE(pipeline.next().outcome.outside);
  } catch (const DeviceError& error) {
    reason = error.what();
  }
  EXPECT_NE(reason.find("killed from outside 9 times in a row"), std::string::npos) << reason;
  EXPECT_NE(reason.find("of memory"), std::string::npos) << reason;
}

TEST_F(Pipeline, WhoWaitsIsToldWhileACandidateRuns) {
  TrialPipeline pipeline = make(0.6);
  int told = 0;
  pipeline.while_waiting([&] { ++told; });
  EXPECT_EQ(run_all(pipeline, {"hang"}).at(0).status, TrialStatus::timeout);
  EXPECT_GE(told, 5);  // in 0.6 s, 50 ms apart at most
}

TEST_F(Pipeline, WhatAKernelDoesToItselfStaysAVerdict) {
  TrialPipeline pipeline = make();
  for (const TrialOutcome& bad : run_all(pipeline, {"abort", "fault", "exit"})) {
    EXPECT_EQ(bad.status, TrialStatus::crash);
    EXPECT_FALSE(bad.outside) << bad.reason;
    EXPECT_FALSE(ended_from_outside(bad.status, bad.reason)) << bad.reason;
  }
  EXPECT_TRUE(ended_from_outside(TrialStatus::crash, "worker killed by signal 9 (Killed) while running"));  // of an older program
  EXPECT_FALSE(ended_from_outside(TrialStatus::crash, "worker killed by signal 11 (Segmentation fault) while running"));
  EXPECT_FALSE(ended_from_outside(TrialStatus::timeout, "no result after 30.0 s of running"));
}

TEST_F(Pipeline, ReasonsSayWhatHappened) {
  TrialPipeline pipeline = make();
  const auto outcomes = run_all(pipeline, {"abort", "exit_compiling", "illegal_address", "fault", "illegal"});
  EXPECT_NE(outcomes.at(0).reason.find("while running"), std::string::npos) << outcomes.at(0).reason;
  EXPECT_NE(outcomes.at(0).reason.find("driver: fell over"), std::string::npos) << outcomes.at(0).reason;
  EXPECT_NE(outcomes.at(1).reason.find("code 3"), std::string::npos) << outcomes.at(1).reason;
  EXPECT_NE(outcomes.at(2).reason.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos) << outcomes.at(2).reason;
#if defined(__SANITIZE_ADDRESS__)
  const std::string end = "code 1";  // the sanitizer takes the signal, reports and exits
#else
  const std::string end = "signal 11";
#endif
  EXPECT_NE(outcomes.at(3).reason.find(end), std::string::npos) << outcomes.at(3).reason;
  EXPECT_EQ(outcomes.at(4).reason, "split(i): no such loop");
}

TEST_F(Pipeline, ALostContextIsMadeAnewAndAnyOtherFailureKeepsIt) {
  TrialPipeline pipeline = make();
  // The first job leaves a mark in the process.
  EXPECT_EQ(run_all(pipeline, {"remember"}).at(0).status, TrialStatus::ok);
  EXPECT_EQ(run_all(pipeline, {"launch_failure"}).at(0).status, TrialStatus::crash);
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).samples_ms.at(2), 1);
  EXPECT_EQ(shared().devices_started, 1);
  EXPECT_EQ(run_all(pipeline, {"illegal_address"}).at(0).status, TrialStatus::crash);
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).samples_ms.at(2), 0);
  EXPECT_EQ(shared().devices_started, 2);
}

TEST_F(Pipeline, HangingKernelsAndCompilersAreKilledAtTheTimeLimit) {
  TrialPipeline pipeline = make(0.3);
  const auto start = std::chrono::steady_clock::now();
  const auto outcomes = run_all(pipeline, {"hang", "good", "hang_compiling", "good"});
  EXPECT_EQ(outcomes.at(0).status, TrialStatus::timeout);
  EXPECT_NE(outcomes.at(0).reason.find("0.3 s of running"), std::string::npos) << outcomes.at(0).reason;
  EXPECT_EQ(outcomes.at(2).status, TrialStatus::timeout);
  EXPECT_NE(outcomes.at(2).reason.find("0.3 s of compiling"), std::string::npos) << outcomes.at(2).reason;
  EXPECT_EQ(outcomes.at(1).status, TrialStatus::ok);
  EXPECT_EQ(outcomes.at(3).status, TrialStatus::ok);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(Pipeline, LargeCodeReachesABusyDeviceWithoutBlockingTheTimeLimit) {
  TrialPipeline pipeline = make(1);
  const auto outcomes = run_all(pipeline, {"hang", "large", "large", "large"});
  EXPECT_EQ(outcomes.at(0).status, TrialStatus::timeout);
  for (const std::size_t k : {1, 2, 3}) {
    ASSERT_EQ(outcomes.at(k).status, TrialStatus::ok) << outcomes.at(k).reason;
    EXPECT_EQ(outcomes.at(k).samples_ms.at(1), 4 << 20);
  }
}

TEST_F(Pipeline, OneDeviceRunsOneAtATimeAndTwoRunTwo) {
  {
    TrialPipeline one = make();
    run_all(one, std::vector<std::string>(8, "good"));
    EXPECT_EQ(shared().most_running, 1);
  }
  TrialPipeline two = make(60, 2);
  std::set<double> medians;
  for (const TrialOutcome& good : run_all(two, std::vector<std::string>(8, "lasting"))) medians.insert(good.median_ms);
  EXPECT_EQ(medians, (std::set<double>{1.5, 2.5}));
}

TEST_F(Pipeline, WhatWasProposedFirstIsMeasuredFirstThoughItCompilesLonger) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    TrialPipeline pipeline = make();
    pipeline.submit(0, job("lasting"));
    for (int k = 1; k < 4; ++k) pipeline.submit(k, job("good"));
    EXPECT_EQ(pipeline.next().ticket, 0);
    for (int k = 1; k < 4; ++k) pipeline.next();
  }
}

TEST_F(Pipeline, DevicesDoNotWaitForeverForWhatWasProposedFirst) {
  TrialPipeline pipeline = make(3);
  pipeline.submit(0, job("hang_compiling"));
  pipeline.submit(1, job("good"));
  EXPECT_EQ(pipeline.next().ticket, 1);
}

TEST_F(Pipeline, LaterJobsRaceTheBestOfEarlierOnes) {
  TrialPipeline pipeline = make();
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).samples_ms.at(0), 0);
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).samples_ms.at(0), 1.5);
}

TEST_F(Pipeline, OneCanBeWaitedForWhileOthersAreUnderWay) {
  TrialPipeline pipeline = make();
  for (int k = 0; k < 6; ++k) pipeline.submit(k, job("good"));
  pipeline.submit(-1, job("wrong"), true);
  EXPECT_EQ(pipeline.wait_for(-1).status, TrialStatus::wrong);
  std::set<std::int64_t> rest;
  for (int k = 0; k < 6; ++k) rest.insert(pipeline.next().ticket);
  EXPECT_EQ(rest.size(), 6u);
  EXPECT_THROW(pipeline.next(), InternalError);
}

TEST_F(Pipeline, AStoredKernelNeedsNoCompiler) {
  TrialPipeline pipeline = make();
  pipeline.submit(5, job("good"), CompiledTrial{{"sm_90", "stored", "{}", ""}, "", "", 0, "{}"});
  const SettledTrial trial = pipeline.next();
  EXPECT_EQ(trial.outcome.status, TrialStatus::ok) << trial.outcome.reason;
  EXPECT_EQ(shared().compiled, 0);
}

TEST_F(Pipeline, TheStopFlagEndsEverythingUnderWay) {
  std::atomic<bool> stop{false};
  TrialPipeline pipeline = make(3600, 1, &stop);
  std::thread interrupt;
  for (int k = 0; k < 4; ++k) pipeline.submit(k, job(k == 0 ? "hang" : "hang_compiling"));
  interrupt = std::thread([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  for (int k = 0; k < 4; ++k) EXPECT_TRUE(pipeline.next().outcome.stopped);
  interrupt.join();
}

TEST_F(Pipeline, AbandonedJobsAreToldOf) {
  TrialPipeline pipeline = make();
  for (int k = 0; k < 5; ++k) pipeline.submit(k, job("hang_compiling"));
  pipeline.abandon();
  for (int k = 0; k < 5; ++k) EXPECT_TRUE(pipeline.next().outcome.stopped);
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).status, TrialStatus::ok);
}

TEST_F(Pipeline, WhoWaitsMayAbandonJobsWhoseProcessesAreStuck) {
  TrialPipeline pipeline = make(3600);
  int told = 0;
  pipeline.while_waiting([&] {
    if (++told == 5) pipeline.abandon();
  });
  for (int k = 0; k < 5; ++k) pipeline.submit(k, job("hang_compiling"));
  for (int k = 0; k < 5; ++k) EXPECT_TRUE(pipeline.next().outcome.stopped);
  EXPECT_EQ(run_all(pipeline, {"good"}).at(0).status, TrialStatus::ok);
}

TEST_F(Pipeline, ADeviceThatCannotStartIsAnErrorNotARow) {
  const auto start = [](bool user) {
    TrialPipeline pipeline(
        PipelineLimits{}, [] { return std::make_unique<ScriptedCompiler>(); },
        [user](int) -> std::unique_ptr<TrialDevice> {
          if (user) throw UserError("there is no device cuda:9");
          throw DeviceError("cuDevicePrimaryCtxRetain failed");
        });
    pipeline.submit(0, job("good"));
    pipeline.next();
  };
  EXPECT_THROW(start(true), UserError);
  EXPECT_THROW(start(false), DeviceError);
}

TEST_F(Pipeline, ADeviceThatDiesWhileStartingIsGivenUp) {
  TrialPipeline pipeline(
      PipelineLimits{}, [] { return std::make_unique<ScriptedCompiler>(); },
      [](int) -> std::unique_ptr<TrialDevice> { _exit(9); });
  pipeline.submit(0, job("good"));
  try {
    pipeline.next();
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("code 9"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace nestor
