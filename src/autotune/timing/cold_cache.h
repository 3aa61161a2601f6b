// Cold caches and warm clocks before each timed run.
#pragma once

#include "support/threads/thread_pool.h"

#include <vector>

namespace nestor {

/// Evicts every cache by reading twice the last level's size, on every thread that a kernel will use. Reading leaves no
/// dirty lines behind whose write-back would be charged to the kernel; the work itself keeps the clocks up.
class ColdCache {
 public:
  explicit ColdCache(int threads);
  void flush();

 private:
  ThreadPool pool_;
  int threads_;
  std::vector<std::uint64_t> memory_;
  std::uint64_t sink_ = 0;
};

}  // namespace nestor
