// ReaderEpochs: lets a writer know when nobody can still see what it took away. Readers wait for nothing.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

namespace nestor {

class ReaderEpochs {
  static constexpr std::size_t kStripes = 16;
  struct alignas(64) Count {
    std::atomic<int> readers{0};
  };

 public:
  /// While it lives, what was published before stays in memory.
  class Reading {
   public:
    explicit Reading(const ReaderEpochs& epochs)
        : count_(epochs.counts_[epochs.phase_.load(std::memory_order_seq_cst) & 1][stripe()].readers) {
      count_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Reading() { count_.fetch_sub(1, std::memory_order_release); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    std::atomic<int>& count_;
  };

  /// Waits until every reader that began before has ended. False when one did not within some milliseconds: it was stopped, or lost to a
  /// fork. One writer at a time.
  bool wait_for_readers() {
    // Twice: a reader may have read the phase before the first change, and count itself after it.
    return drained() && drained();
  }

 private:
  static std::size_t stripe() {
    static std::atomic<std::size_t> next{0};
    static thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed) % kStripes;
    return mine;
  }

  bool drained() {
    const unsigned before = phase_.fetch_add(1, std::memory_order_seq_cst) & 1;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
    for (const Count& count : counts_[before]) {
      while (count.readers.load(std::memory_order_seq_cst) != 0) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::yield();
      }
    }
    return true;
  }

  std::atomic<unsigned> phase_{0};
  mutable std::array<std::array<Count, kStripes>, 2> counts_;
};

}  // namespace nestor
