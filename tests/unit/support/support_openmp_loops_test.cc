// Loops on the caller's OpenMP threads: every task once, and none of our own threads beside them.
#include "support/threads/openmp_loops.h"

#include "support/system/openmp_runtime.h"
#include "support/threads/thread_pool.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace nestor {
namespace {

using Task = std::function<void(std::int64_t, void*)>;

void parallel_for(const OpenMpLoops& loops, std::int64_t count, std::int64_t scratch_bytes, Task task) {
  const nestor_host_services* services = loops.services();
  ASSERT_NE(services, nullptr);
  services->parallel_for(
      services->context, count, scratch_bytes,
      [](void* closure, std::int64_t index, void* scratch) { (*static_cast<Task*>(closure))(index, scratch); }, &task);
}

/// libgomp comes with the compiler's runtime libraries; nothing here links to it.
class OpenMpLoopsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const bool before = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
    if (!before) {
      EXPECT_EQ(openmp_runtime(), nullptr);
      EXPECT_EQ(OpenMpLoops(2).services(), nullptr);
    }
    if (dlopen("libgomp.so.1", RTLD_LAZY) == nullptr) GTEST_SKIP() << "no libgomp.so.1 here";
    ASSERT_NE(openmp_runtime(), nullptr) << "found once it has been loaded";
  }
  static void set_threads(int count) {
    const auto set = reinterpret_cast<void (*)(int)>(dlsym(dlopen("libgomp.so.1", RTLD_LAZY), "omp_set_num_threads"));
    ASSERT_NE(set, nullptr);
    set(count);
  }
};

TEST_F(OpenMpLoopsTest, EveryTaskRunsOnceOnNoMoreThreadsThanWanted) {
  set_threads(4);
  for (const int threads : {1, 2, 3}) {
    const OpenMpLoops loops(threads);
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      std::mutex mutex;
      std::set<std::thread::id> seen;
      parallel_for(loops, count, 100, [&](std::int64_t index, void* scratch) {
        ++runs[static_cast<std::size_t>(index)];
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch) % 64, 0U);
        const std::lock_guard lock(mutex);
        seen.insert(std::this_thread::get_id());
      });
      for (const auto& run : runs) ASSERT_EQ(run, 1);
      EXPECT_LE(seen.size(), static_cast<std::size_t>(threads));
    }
  }
}

/// What torch.set_num_threads says counts.
TEST_F(OpenMpLoopsTest, TheCallersNumberOfThreadsIsKept) {
  set_threads(1);
  const std::thread::id caller = std::this_thread::get_id();
  parallel_for(OpenMpLoops(8), 100, 0, [&](std::int64_t, void*) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  set_threads(2);
}

TEST_F(OpenMpLoopsTest, LoopsWithinTasksRunWhereTheyAre) {
  const OpenMpLoops loops(2);
  std::atomic<int> runs{0};
  parallel_for(loops, 8, 64, [&](std::int64_t, void* outer) {
    const std::thread::id here = std::this_thread::get_id();
    parallel_for(loops, 5, 64, [&](std::int64_t, void* inner) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_NE(inner, outer);
      ++runs;
    });
  });
  EXPECT_EQ(runs, 40);
}

TEST_F(OpenMpLoopsTest, SeveralThreadsTakeTurns) {
  const OpenMpLoops loops(2);
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int k = 0; k < 4; ++k) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) parallel_for(loops, 20, 0, [&](std::int64_t, void*) { ++runs; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 4 * 50 * 20);
}

/// A forked child has none of the team's threads, and libgomp would wait for them.
TEST_F(OpenMpLoopsTest, AForkedChildHasThreadsOfItsOwn) {
  const OpenMpLoops loops(2);
  parallel_for(loops, 100, 0, [](std::int64_t, void*) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    if (loops.services() != nullptr) _exit(1);
    std::atomic<int> runs{0};
    for_each(ThreadPool(2), 100, [&](std::size_t) { ++runs; });
    _exit(runs == 100 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace nestor
