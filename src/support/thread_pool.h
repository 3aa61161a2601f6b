// Worker threads behind nestor_host_services::parallel_for, used by the tuner and by the runtime.
#pragma once

#include "nestor/host_abi.h"

#include <memory>

namespace nestor {

/// Threads that take tasks of one parallel loop at a time; scratch memory grows on demand and is kept. parallel_for called
/// from inside a task runs its tasks on the calling thread. Several threads may call parallel_for at once (they take turns).
class ThreadPool {
 public:
  /// `threads` >= 1, the calling thread included.
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

}  // namespace nestor
