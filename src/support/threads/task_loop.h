// One parallel loop of tasks, whoever's threads run it: runs of tasks are claimed by one atomic counter, scratch memory is each thread's own.
#pragma once

#include "nestor/host_abi.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>

namespace nestor {

inline constexpr std::size_t kCacheLine = 64;

/// 64-byte aligned memory that only grows.
class GrowingScratch {
 public:
  GrowingScratch() = default;
  ~GrowingScratch() { std::free(memory_); }
  GrowingScratch(const GrowingScratch&) = delete;
  GrowingScratch& operator=(const GrowingScratch&) = delete;

  /// Throws std::bad_alloc.
  void* reserve(std::int64_t bytes);

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

/// Scratch memory of one thread, one area for each depth of nested loops: an outer task goes on using its own while an inner loop runs.
/// A deque, so that the outer areas stay where they are.
struct TaskSlot {
  std::deque<GrowingScratch> levels{1};
};

/// The tasks of one loop.
class TaskLoop {
 public:
  struct Job {
    std::int64_t count = 0;
    std::int64_t scratch_bytes = 0;
    nestor_task task = nullptr;
    void* closure = nullptr;
  };

  /// For at most so many threads. Nobody may be in run().
  void begin(const Job& job, int threads);
  const Job& job() const { return job_; }
  /// Runs tasks that nobody has claimed, until there are none. Each thread has a slot of its own.
  void run(TaskSlot& slot);

  /// Runs the job here and now if the calling thread is in a task of some loop; false: it is not, and nothing was done.
  static bool run_within_task(const Job& job);

 private:
  bool claim(std::int64_t& first, std::int64_t& end);

  Job job_;
  std::int64_t threads_ = 1;
  alignas(kCacheLine) std::atomic<std::int64_t> next_{0};
};

}  // namespace nestor
