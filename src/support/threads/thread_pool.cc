// A pool made for loops of microseconds: workers spin briefly before they sleep, runs of tasks are claimed by one atomic counter,
// and a worker that wakes too late never holds up the caller.
#include "support/threads/thread_pool.h"

#include "support/error.h"
#include "support/system/start_thread.h"
#include "support/threads/task_loop.h"

#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace nestor {
namespace {

constexpr int kSpins = 2000;  // some 50 us: longer than the gap between two loops of one kernel, shorter than a time slice
}  // namespace

// A job is written while it is closed and nobody has joined it; workers join by counting themselves in while it is open.
// The caller closes it when no task is left to claim, and returns when everyone who joined has left.
struct ThreadPool::Impl {
  static constexpr std::uint32_t kOpen = 1u << 31;

  nestor_host_services services{};
  std::deque<TaskSlot> slots;  // 0: the caller's
  std::vector<std::thread> workers;
  std::mutex turn;  // held by the caller whose job it is
  TaskLoop loop;

  alignas(kCacheLine) std::atomic<std::uint32_t> state{0};  // kOpen | number of workers inside
  alignas(kCacheLine) std::atomic<std::uint32_t> epoch{0};  // counts jobs; a change wakes workers
  std::atomic<bool> stopping{false};

  std::mutex sleep_mutex;
  std::condition_variable wake, done;
  std::atomic<int> sleepers{0};
  std::atomic<bool> caller_sleeps{false};

  explicit Impl(int threads);
  ~Impl();
  void end_workers();
  void work(TaskSlot& slot);
  void wait_for_epoch(std::uint32_t seen);
  bool join();
  void leave();
  void run(const TaskLoop::Job& wanted);
};

ThreadPool::Impl::Impl(int threads) {
  services.context = this;
  services.parallel_for = [](void* context, std::int64_t count, std::int64_t scratch_bytes, nestor_task task, void* closure) {
    if (count <= 0) return;
    const TaskLoop::Job job{count, scratch_bytes, task, closure};
    if (!TaskLoop::run_within_task(job)) static_cast<Impl*>(context)->run(job);
  };
  for (int k = 0; k < threads; ++k) slots.emplace_back();
  workers.reserve(static_cast<std::size_t>(threads));
  try {
    for (int k = 1; k < threads; ++k) {
      workers.push_back(
          start_thread(fmt::format("thread {} of {} of a pool", k + 1, threads), [this, slot = &slots[k]] { work(*slot); }));
    }
  } catch (...) {
    end_workers();
    throw;
  }
}

ThreadPool::Impl::~Impl() { end_workers(); }

void ThreadPool::Impl::end_workers() {
  {
    const std::lock_guard lock(sleep_mutex);
    stopping = true;
    ++epoch;
  }
  wake.notify_all();
  for (std::thread& worker : workers) worker.join();
}

void ThreadPool::Impl::work(TaskSlot& slot) {
  std::uint32_t seen = 0;
  while (true) {
    wait_for_epoch(seen);
    seen = epoch.load(std::memory_order_acquire);
    if (stopping) return;
    if (!join()) continue;
    loop.run(slot);
    leave();
  }
}

void ThreadPool::Impl::wait_for_epoch(std::uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (epoch.load(std::memory_order_acquire) != seen) return;
    _mm_pause();
  }
  std::unique_lock lock(sleep_mutex);
  // Sequentially consistent on both sides: either this thread sees the new epoch, or the caller sees this sleeper.
  ++sleepers;
  wake.wait(lock, [&] { return epoch.load() != seen; });
  --sleepers;
}

bool ThreadPool::Impl::join() {
  std::uint32_t now = state.load(std::memory_order_acquire);
  while ((now & kOpen) != 0) {
    if (state.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::Impl::leave() {
  if (state.fetch_sub(1) != 1 || !caller_sleeps) return;  // 1: closed, and this was the last one inside
  const std::lock_guard lock(sleep_mutex);
  done.notify_one();
}

void ThreadPool::Impl::run(const TaskLoop::Job& wanted) {
  const std::lock_guard lock_turn(turn);
  loop.begin(wanted, static_cast<int>(slots.size()));
  const bool alone = workers.empty() || wanted.count == 1;
  if (!alone) {
    state.store(kOpen, std::memory_order_release);
    ++epoch;
    if (sleepers > 0) {
      const std::lock_guard lock(sleep_mutex);
      wake.notify_all();
    }
  }
  loop.run(slots[0]);
  if (alone) return;
  state.fetch_and(~kOpen);
  for (int spin = 0; spin < kSpins; ++spin) {
    if (state.load(std::memory_order_acquire) == 0) return;
    _mm_pause();
  }
  std::unique_lock lock(sleep_mutex);
  caller_sleeps = true;
  done.wait(lock, [&] { return state.load() == 0; });
  caller_sleeps = false;
}

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) user_error("a thread pool needs at least 1 thread, not {}", threads);
  impl_ = std::make_unique<Impl>(threads);
}

ThreadPool::~ThreadPool() = default;

int ThreadPool::threads() const { return static_cast<int>(impl_->slots.size()); }

const nestor_host_services* ThreadPool::services() const { return &impl_->services; }

void for_each(const ThreadPool& pool, std::size_t count, const std::function<void(std::size_t)>& body) {
  struct Work {
    const std::function<void(std::size_t)>& body;
    std::atomic<bool> failed{false};
    std::exception_ptr failure{};
  } work{body};
  const nestor_host_services& services = *pool.services();
  services.parallel_for(
      services.context, static_cast<std::int64_t>(count), 0,
      [](void* closure, std::int64_t index, void*) {
        Work& shared = *static_cast<Work*>(closure);
        if (shared.failed) return;
        try {
          shared.body(static_cast<std::size_t>(index));
        } catch (...) {
          if (!shared.failed.exchange(true)) shared.failure = std::current_exception();
        }
      },
      &work);
  if (work.failure) std::rethrow_exception(work.failure);
}

}  // namespace nestor
