// Which process this is, counted by forks, and objects that a forked child makes anew.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace nestor {

/// How many forks lie between this process and the one that called this function first. Costs one load.
std::uint64_t fork_count();

/// While one lives, no other thread of this process can fork: for calls into libraries whose global locks a child would find held for
/// good. Not recursive, and the thread that holds it must not fork.
class NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

/// An object with threads or locks. A forked child has a copy of its memory, but none of its threads, and locks that nobody will
/// release: there a new one is made at the first use, and the copy is left alone for good. Safe to use from several threads.
template <class T>
class PerProcess {
 public:
  explicit PerProcess(std::function<std::unique_ptr<T>()> make) : make_(std::move(make)) {}
  ~PerProcess() {
    Made* made = made_.load(std::memory_order_acquire);
    if (made != nullptr && made->count == fork_count()) delete made;
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  /// Throws what making it throws.
  T& get() {
    Made* made = made_.load(std::memory_order_acquire);
    const std::uint64_t now = fork_count();
    if (made != nullptr && made->count == now) return *made->object;
    auto fresh = std::make_unique<Made>(now, make_());
    // Of several threads that come here at once, one wins; the others take what it made.
    if (made_.compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel)) made = fresh.release();
    return *made->object;
  }

 private:
  struct Made {
    Made(std::uint64_t forks, std::unique_ptr<T> made) : count(forks), object(std::move(made)) {}
    std::uint64_t count;
    std::unique_ptr<T> object;
  };
  std::function<std::unique_ptr<T>()> make_;
  std::atomic<Made*> made_{nullptr};
};

}  // namespace nestor
