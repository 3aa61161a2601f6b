// Worker threads behind nestor_host_services::parallel_for, used by the tuner and by the runtime.
#pragma once

#include "nestor/host_abi.h"

#include <cstddef>
#include <functional>
#include <memory>

namespace nestor {

/// Threads that take tasks of one parallel loop at a time; scratch memory grows on demand and is kept. parallel_for called
/// from inside a task runs its tasks on the calling thread. Several threads may call parallel_for at once (they take turns).
class ThreadPool {
 public:
  /// `threads` >= 1, the calling thread included. Throws LackOfResources when the system gives so many no more.
  /// A forked child cannot use, or destroy, a pool of its parent (support/system/fork_count.h).
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;
  /// The services to hand to a kernel; valid while the pool lives.
  const nestor_host_services* services() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// body(0) to body(count - 1) on the pool's threads. Throws the first exception that one threw; those that have not begun then do nothing.
void for_each(const ThreadPool& pool, std::size_t count, const std::function<void(std::size_t)>& body);

}  // namespace nestor
