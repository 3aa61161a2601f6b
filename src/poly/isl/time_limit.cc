// One thread watches all limits of the process and aborts what has run over.
#include "poly/isl/time_limit.h"

#include "support/system/start_thread.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace nestor {
namespace {

/// Shortest and longest time between two looks, and how long the watcher stays awake when there is nothing to watch.
constexpr double kShortestLook = 0.01, kLongestLook = 0.25;
constexpr int kIdleLooks = 8;

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Watcher {
 public:
  /// Of this process: a child that was forked has none of its parent's threads.
  static Watcher& instance() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { current().store(nullptr); });
    static_cast<void>(registered);
    Watcher* known = current().load();
    if (known != nullptr) return *known;
    auto* fresh = new Watcher;  // never freed: its thread may outlive everything else
    if (current().compare_exchange_strong(known, fresh)) return *fresh;
    delete fresh;
    return *known;
  }

  void watch(isl_ctx* context, clockid_t clock, double end) {
    const std::lock_guard lock(mutex_);
    watched_[context] = {clock, end};
    if (!started_) start_thread("the thread that limits isl's time", [this] { run(); }).detach();
    started_ = true;
    if (asleep_) wake_.notify_one();
  }

  void forget(isl_ctx* context) {
    const std::lock_guard lock(mutex_);
    watched_.erase(context);
  }

 private:
  struct Watched {
    clockid_t clock;
    double end;
  };

  static std::atomic<Watcher*>& current() {
    static std::atomic<Watcher*> watcher{nullptr};
    return watcher;
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (int idle = 0;;) {
      if (watched_.empty() && idle >= kIdleLooks) {
        asleep_ = true;
        wake_.wait(lock, [&] { return !watched_.empty(); });
        asleep_ = false;
      }
      idle = watched_.empty() ? idle + 1 : 0;
      double wait = kLongestLook;
      for (const auto& [context, limit] : watched_) {
        const double left = limit.end - now(limit.clock);
        if (left <= 0) isl_ctx_abort(context);
        wait = std::min(wait, left);
      }
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::duration<double>(std::max(wait, kShortestLook)));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<isl_ctx*, Watched> watched_;
  bool started_ = false;
  bool asleep_ = false;
};

thread_local double current_end = 0;  ///< of the calling thread's innermost limit

clockid_t own_clock() {
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  pthread_getcpuclockid(pthread_self(), &clock);
  return clock;
}

}  // namespace

IslTimeLimit::IslTimeLimit(isl_ctx* context, double seconds) : context_(context), previous_(current_end) {
  const double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
  current_end = previous_ > 0 ? std::min(previous_, end) : end;
  Watcher::instance().watch(context_, own_clock(), current_end);
}

IslTimeLimit::~IslTimeLimit() {
  const bool over = isl_ctx_aborted(context_) != 0;
  current_end = previous_;
  if (previous_ > 0) {
    Watcher::instance().watch(context_, own_clock(), previous_);
  } else {
    Watcher::instance().forget(context_);
  }
  // Time that the limit around this one has left is for what follows.
  if (over && (previous_ == 0 || now(CLOCK_THREAD_CPUTIME_ID) < previous_)) isl_ctx_resume(context_);
}

}  // namespace nestor
