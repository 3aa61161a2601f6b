// Claiming and running tasks.
#include "support/threads/task_loop.h"

#include "support/rounding.h"

#include <algorithm>
#include <new>

namespace nestor {
namespace {

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

void TaskLoop::begin(const Job& job) {
  job_ = job;
  next_.store(0, std::memory_order_relaxed);
}

void TaskLoop::run(TaskSlot& slot) {
  std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
  if (index >= job_.count) return;
  current_slot = &slot;
  current_depth = 0;
  void* scratch = slot.levels[0].reserve(job_.scratch_bytes);
  for (; index < job_.count; index = next_.fetch_add(1, std::memory_order_relaxed)) job_.task(job_.closure, index, scratch);
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
