// Counts in the child of every fork, and keeps forks out of what must not be cut in two.
#include "support/system/fork_count.h"

#include <pthread.h>

#include <mutex>

namespace nestor {
namespace {

std::atomic<std::uint64_t> forks{0};

/// Never destroyed: a fork may come while the process ends.
std::mutex& gate() {
  static auto& mutex = *new std::mutex();
  return mutex;
}

/// Registered when this library is loaded; what comes before has no threads of ours.
const int registered = pthread_atfork([] { gate().lock(); }, [] { gate().unlock(); },
                                      [] {
                                        gate().unlock();
                                        forks.fetch_add(1, std::memory_order_relaxed);
                                      });

}  // namespace

std::uint64_t fork_count() {
  static_cast<void>(registered);
  return forks.load(std::memory_order_relaxed);
}

NoFork::NoFork() { gate().lock(); }
NoFork::~NoFork() { gate().unlock(); }

}  // namespace nestor
