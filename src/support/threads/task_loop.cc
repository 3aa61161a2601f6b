// Claiming and running tasks.
#include "support/threads/task_loop.h"

#include "support/rounding.h"

#include <algorithm>
#include <new>

namespace nestor {
namespace {

constexpr std::int64_t kRunsOfThread = 4;  ///< of what is left when one is claimed: so many are enough to balance

// The slot of the task that the current thread is inside, if any, and the depth of its loops.
thread_local TaskSlot* current_slot = nullptr;
thread_local std::size_t current_depth = 0;

}  // namespace

void* GrowingScratch::reserve(std::int64_t bytes) {
  const auto wanted = static_cast<std::size_t>(round_up(std::max<std::int64_t>(bytes, 0), std::int64_t{kCacheLine}));
  if (wanted <= size_) return memory_;
  std::free(memory_);
  size_ = 0;
  memory_ = std::aligned_alloc(kCacheLine, wanted);
  if (memory_ == nullptr) throw std::bad_alloc();
  size_ = wanted;
  return memory_;
}

void TaskLoop::begin(const Job& job, int threads) {
  job_ = job;
  threads_ = threads;
  next_.store(0, std::memory_order_relaxed);
}

/// Guided self-scheduling (C. Polychronopoulos, D. Kuck, IEEE Trans. Computers 36(12), 1987): a part of what is left, down to one task.
/// Tasks that follow one another work on neighbouring rows, and a task fetches the first rows of the next one.
bool TaskLoop::claim(std::int64_t& first, std::int64_t& end) {
  first = next_.load(std::memory_order_relaxed);
  while (first < job_.count) {
    end = first + std::max<std::int64_t>((job_.count - first) / (kRunsOfThread * threads_), 1);
    if (next_.compare_exchange_weak(first, end, std::memory_order_relaxed)) return true;
  }
  return false;
}

void TaskLoop::run(TaskSlot& slot) {
  std::int64_t index = 0, end = 0;
  if (!claim(index, end)) return;
  current_slot = &slot;
  current_depth = 0;
  void* scratch = slot.levels[0].reserve(job_.scratch_bytes);
  do {
    for (; index < end; ++index) job_.task(job_.closure, index, scratch);
  } while (claim(index, end));
  current_slot = nullptr;
}

bool TaskLoop::run_within_task(const Job& job) {
  if (current_slot == nullptr) return false;
  ++current_depth;
  if (current_slot->levels.size() <= current_depth) current_slot->levels.emplace_back();
  void* scratch = current_slot->levels[current_depth].reserve(job.scratch_bytes);
  for (std::int64_t index = 0; index < job.count; ++index) job.task(job.closure, index, scratch);
  --current_depth;
  return true;
}

}  // namespace nestor
