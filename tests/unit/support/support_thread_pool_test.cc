// The thread pool runs every task once, on as many threads as it has, and can be called from anywhere.
#include "support/threads/thread_pool.h"

#include "support/error.h"
#include "support/threads/task_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace nestor {
namespace {

using Task = std::function<void(std::int64_t, void*)>;

void parallel_for(const ThreadPool& pool, std::int64_t count, std::int64_t scratch_bytes, Task task) {
  const nestor_host_services* services = pool.services();
  services->parallel_for(
      services->context, count, scratch_bytes,
      [](void* closure, std::int64_t index, void* scratch) { (*static_cast<Task*>(closure))(index, scratch); }, &task);
}

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, EveryTaskRunsOnce) {
  const ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 7, 100, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
    parallel_for(pool, count, 0, [&](std::int64_t index, void*) { ++runs[static_cast<std::size_t>(index)]; });
    for (const auto& run : runs) ASSERT_EQ(run, 1);
  }
}

TEST_P(ThreadPoolSizes, WhatTasksWroteIsThereAfterwards) {
  const ThreadPool pool(GetParam());
  std::vector<std::int64_t> values(64);
  for (int round = 1; round <= 500; ++round) {
    parallel_for(pool, 64, 0, [&](std::int64_t index, void*) { values[static_cast<std::size_t>(index)] += index; });
    ASSERT_EQ(values[63], 63 * round);
    ASSERT_EQ(values[1], round);
  }
}

TEST_P(ThreadPoolSizes, ScratchIsAlignedPrivateAndAsLargeAsAsked) {
  const ThreadPool pool(GetParam());
  for (const std::int64_t bytes : {1, 64, 100, 5000, 64, 200000}) {
    std::atomic<int> damaged{0};
    parallel_for(pool, 50, bytes, [&](std::int64_t index, void* scratch) {
      if (reinterpret_cast<std::uintptr_t>(scratch) % 64 != 0) ++damaged;
      auto* area = static_cast<unsigned char*>(scratch);
      std::memset(area, static_cast<int>(index), static_cast<std::size_t>(bytes));
      std::this_thread::yield();
      for (std::int64_t k = 0; k < bytes; ++k) damaged += area[k] != static_cast<unsigned char>(index);
    });
    EXPECT_EQ(damaged, 0) << bytes;
  }
}

TEST_P(ThreadPoolSizes, NestedLoopsRunOnTheCallingThreadWithScratchOfTheirOwn) {
  const ThreadPool pool(GetParam());
  std::atomic<int> inner_runs{0}, wrong_thread{0}, damaged{0};
  parallel_for(pool, 8, 256, [&](std::int64_t outer, void* outer_scratch) {
    const std::thread::id self = std::this_thread::get_id();
    std::memset(outer_scratch, static_cast<int>(outer), 256);
    parallel_for(pool, 5, 1024, [&](std::int64_t, void* inner_scratch) {
      ++inner_runs;
      if (std::this_thread::get_id() != self) ++wrong_thread;
      std::memset(inner_scratch, 0xff, 1024);
      parallel_for(pool, 2, 64, [&](std::int64_t, void* deep_scratch) { std::memset(deep_scratch, 0xee, 64); });
      damaged += static_cast<unsigned char*>(inner_scratch)[63] != 0xff;
    });
    for (int k = 0; k < 256; ++k) damaged += static_cast<unsigned char*>(outer_scratch)[k] != static_cast<unsigned char>(outer);
  });
  EXPECT_EQ(inner_runs, 40);
  EXPECT_EQ(wrong_thread, 0);
  EXPECT_EQ(damaged, 0);
}

TEST_P(ThreadPoolSizes, SeveralCallersTakeTurns) {
  const ThreadPool pool(GetParam());
  std::atomic<int> running{0};
  std::atomic<std::int64_t> total{0};
  std::atomic<bool> mixed{false};
  std::mutex owner_mutex;
  std::vector<std::thread> callers;
  std::atomic<int> owner{-1};
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 100; ++round) {
        parallel_for(pool, 16, 128, [&](std::int64_t index, void*) {
          if (running.fetch_add(1) == 0) owner = caller;
          total += index;
          if (running > GetParam()) mixed = true;
          running.fetch_sub(1);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 3 * 100 * 120);
  EXPECT_FALSE(mixed) << "more tasks at once than threads";
}

TEST_P(ThreadPoolSizes, WorkersThatSleepAreWoken) {
  const ThreadPool pool(GetParam());
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::atomic<int> runs{0};
    parallel_for(pool, 20, 0, [&](std::int64_t, void*) { ++runs; });
    EXPECT_EQ(runs, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(, ThreadPoolSizes, testing::Values(1, 2, 3, 8));

TEST(ThreadPool, AllThreadsTakePart) {
  const ThreadPool pool(3);
  std::set<std::thread::id> threads;
  std::mutex mutex;
  std::atomic<int> waiting{0};
  // Each task waits until all three are under way: it ends only if three threads run them.
  parallel_for(pool, 3, 0, [&](std::int64_t, void*) {
    ++waiting;
    while (waiting < 3) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(threads.size(), 3u);
}

TEST(ThreadPool, ATaskOfOnePoolMayCallAnother) {
  const ThreadPool outer(2), inner(2);
  std::atomic<int> runs{0};
  parallel_for(outer, 4, 0, [&](std::int64_t, void*) { parallel_for(inner, 4, 0, [&](std::int64_t, void*) { ++runs; }); });
  EXPECT_EQ(runs, 16);
}

/// Threads of this process.
std::ptrdiff_t live_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

TEST(ThreadPool, UnusedPoolsStop) {
  const std::ptrdiff_t before = live_threads();
  for (int round = 0; round < 20; ++round) {
    const ThreadPool pool(4);
    EXPECT_EQ(live_threads(), before + 3);
  }
  // A thread that has ended may be listed a moment longer.
  for (int wait = 0; live_threads() > before && wait < 2000; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(live_threads(), before);
}

TEST(ThreadPool, NeedsAThread) { EXPECT_THROW(ThreadPool(0), UserError); }

TEST(ForEach, RunsEveryTaskAndPassesOnTheFirstException) {
  const ThreadPool pool(4);
  std::vector<std::atomic<int>> runs(1000);
  for_each(pool, runs.size(), [&](std::size_t k) { ++runs[k]; });
  for (const auto& count : runs) EXPECT_EQ(count, 1);
  EXPECT_THROW(for_each(pool, 100,
                        [](std::size_t k) {
                          if (k == 37) throw std::runtime_error("37");
                        }),
               std::runtime_error);
  for_each(pool, 0, [](std::size_t) { FAIL(); });
}

/// While one thread is in its first task, another runs all that is left to claim.
TEST(TaskLoop, NeighboursAreClaimedTogetherAndTheLastOnesAlone) {
  struct Seen {
    TaskLoop loop;
    TaskSlot first, second;
    std::vector<std::int64_t> by_first, by_second;
    std::thread::id of_first = std::this_thread::get_id();
  } seen;
  const auto task = [](void* closure, std::int64_t index, void*) {
    Seen& all = *static_cast<Seen*>(closure);
    const bool is_first = std::this_thread::get_id() == all.of_first;
    (is_first ? all.by_first : all.by_second).push_back(index);
    if (is_first && index == 0) std::thread([&] { all.loop.run(all.second); }).join();
  };
  for (const std::int64_t count : {1, 7, 64, 1000}) {
    seen.by_first.clear(), seen.by_second.clear();
    seen.loop.begin({count, 0, task, &seen}, 2);
    seen.loop.run(seen.first);
    const auto together = std::max<std::int64_t>(count / 8, 1);
    ASSERT_EQ(seen.by_first.size(), static_cast<std::size_t>(together)) << count;
    ASSERT_EQ(seen.by_second.size(), static_cast<std::size_t>(count - together)) << count;
    for (std::int64_t k = 0; k < count; ++k) {
      const bool is_first = k < together;
      EXPECT_EQ((is_first ? seen.by_first : seen.by_second)[static_cast<std::size_t>(is_first ? k : k - together)], k);
    }
  }
}

}  // namespace
}  // namespace nestor
