// Worker processes: whatever a candidate does to its process, the tuner gets an outcome and goes on.
#include "autotune/workers/worker_pool.h"
#include "support/error.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace nestor {
namespace {

/// Does what the name of a job's only step says.
class ScriptedRunner : public TrialRunner {
 public:
  std::optional<TrialOutcome> prepare(const TrialJob& job) override {
    const std::string action = job.steps.at(0).name;
    if (action == "illegal") throw UserError("split(i): no such loop");
    if (action == "bug") throw InternalError("op has no lowering");
    if (action == "hang_compiling") sleep_long();
    if (action == "exit") _exit(3);
    if (action == "early") return outcome(TrialStatus::infeasible, "too large", 0);
    if (action == "memory") {
      std::vector<std::vector<char>> hoard;
      for (;;) hoard.emplace_back(std::size_t{64} << 20, 1);
    }
    return std::nullopt;
  }

  TrialOutcome run(const TrialJob& job) override {
    const std::string action = job.steps.at(0).name;
    if (action == "crash") {
      // A page that faults; a null pointer would be undefined behaviour that the compiler may drop.
      auto* page = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      page[0] = 1;
    }
    if (action == "abort") {
      (void)!write(STDERR_FILENO, "LLVM ERROR: cannot select\n", 26);
      std::abort();
    }
    if (action == "hang") sleep_long();
    if (action == "wrong") return outcome(TrialStatus::wrong, "y[0] is 1, should be 2", 0);
    TrialOutcome result = outcome(TrialStatus::ok, "", 1.5);
    result.samples_ms = {1.0, 1.5, 2.0};
    result.kernel = KernelRecord{"x86-64", std::string("\0\xff\x80 code", 8), "{}", ""};
    return result;
  }

 private:
  static void sleep_long() { std::this_thread::sleep_for(std::chrono::hours(1)); }
  static TrialOutcome outcome(TrialStatus status, std::string reason, double ms) {
    TrialOutcome result;
    result.status = status;
    result.reason = std::move(reason);
    result.median_ms = ms;
    return result;
  }
};

TrialJob job(const std::string& action) { return {{Step{action, {1, "two"}}}, 0, false}; }

WorkerPool make_pool(int workers, double seconds, const std::atomic<bool>* stop = nullptr) {
  WorkerLimits limits;
  limits.workers = workers;
  limits.prepare_timeout_s = seconds;
  limits.run_timeout_s = seconds;
  limits.memory_limit = std::int64_t{512} << 20;
  return WorkerPool(limits, [] { return std::make_unique<ScriptedRunner>(); }, stop);
}

TEST(Worker, AGoodTrialComesBackWhole) {
  WorkerPool pool = make_pool(1, 60);
  const TrialOutcome outcome = pool.measure({job("good")}).at(0);
  EXPECT_EQ(outcome.status, TrialStatus::ok);
  EXPECT_EQ(outcome.samples_ms, (std::vector<double>{1.0, 1.5, 2.0}));
  EXPECT_EQ(outcome.median_ms, 1.5);
  ASSERT_TRUE(outcome.kernel.has_value());
  EXPECT_EQ(outcome.kernel->code, std::string("\0\xff\x80 code", 8));
}

TEST(Worker, EveryWayToFailIsAnOutcomeAndTheNextTrialSucceeds) {
  WorkerPool pool = make_pool(2, 60);
  const std::vector<std::pair<std::string, TrialStatus>> cases{{"illegal", TrialStatus::illegal}, {"bug", TrialStatus::wrong},
                                                               {"crash", TrialStatus::crash},     {"abort", TrialStatus::crash},
                                                               {"exit", TrialStatus::crash},      {"wrong", TrialStatus::wrong},
                                                               {"early", TrialStatus::infeasible}};
  for (const auto& [action, status] : cases) {
    const auto outcomes = pool.measure({job(action), job("good"), job("good")});
    EXPECT_EQ(outcomes.at(0).status, status) << action;
    EXPECT_FALSE(outcomes.at(0).reason.empty()) << action;
    EXPECT_EQ(outcomes.at(1).status, TrialStatus::ok) << action;
    EXPECT_EQ(outcomes.at(2).status, TrialStatus::ok) << action;
  }
}

TEST(Worker, ReasonsSayWhatHappened) {
  WorkerPool pool = make_pool(1, 60);
#if defined(__SANITIZE_ADDRESS__)
  const std::string end = "code 1";  // the sanitizer takes the signal, reports and exits
#else
  const std::string end = "signal 11";
#endif
  const std::string crash = pool.measure({job("crash")}).at(0).reason;
  EXPECT_NE(crash.find(end), std::string::npos) << crash;
  EXPECT_NE(pool.measure({job("exit")}).at(0).reason.find("code 3"), std::string::npos);
  EXPECT_NE(pool.measure({job("abort")}).at(0).reason.find("LLVM ERROR: cannot select"), std::string::npos);
  EXPECT_EQ(pool.measure({job("illegal")}).at(0).reason, "split(i): no such loop");
}

TEST(Worker, HangingTrialsAreKilledAtTheTimeLimit) {
  WorkerPool pool = make_pool(1, 0.3);
  for (const char* action : {"hang_compiling", "hang"}) {
    const auto start = std::chrono::steady_clock::now();
    const TrialOutcome outcome = pool.measure({job(action)}).at(0);
    EXPECT_EQ(outcome.status, TrialStatus::timeout);
    EXPECT_NE(outcome.reason.find("0.3 s"), std::string::npos) << outcome.reason;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  }
  WorkerPool patient = make_pool(1, 60);
  EXPECT_EQ(patient.measure({job("good")}).at(0).status, TrialStatus::ok);
}

TEST(Worker, AMemoryHogIsAnOutcome) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the address sanitizer reserves more than any limit";
#endif
  WorkerPool pool = make_pool(1, 60);
  const auto outcomes = pool.measure({job("memory"), job("good")});
  EXPECT_EQ(outcomes.at(0).status, TrialStatus::crash);
  EXPECT_EQ(outcomes.at(0).reason, "out of memory");
  EXPECT_EQ(outcomes.at(1).status, TrialStatus::ok);
}

TEST(Worker, TheStopFlagEndsATrialUnderWay) {
  std::atomic<bool> stop{false};
  WorkerPool pool = make_pool(1, 3600, &stop);
  std::thread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    stop = true;
  });
  const TrialOutcome outcome = pool.measure({job("hang")}).at(0);
  interrupt.join();
  EXPECT_TRUE(outcome.stopped);
}

TEST(Worker, AWorkerKilledFromOutsideIsReplaced) {
  std::atomic<int>* calls =
      static_cast<std::atomic<int>*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  WorkerLimits limits;
  limits.workers = 1;
  WorkerPool pool(limits, [calls] {
    calls->store(static_cast<int>(getpid()));
    return std::make_unique<ScriptedRunner>();
  });
  EXPECT_EQ(pool.measure({job("good")}).at(0).status, TrialStatus::ok);
  const int first = calls->load();
  kill(first, SIGKILL);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const TrialOutcome next = pool.measure({job("good")}).at(0);
  const TrialOutcome after = pool.measure({job("good")}).at(0);
  EXPECT_EQ(after.status, TrialStatus::ok) << next.reason << after.reason;
  EXPECT_NE(calls->load(), first);
  munmap(calls, 4096);
}

}  // namespace
}  // namespace nestor
