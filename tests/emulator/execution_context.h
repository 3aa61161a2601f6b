// Contexts of execution that take turns on one processor: a stack of their own each, and a switch that costs a few nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace nestor::emulation {

/// Stops here and goes on where `to` stopped. `from` is where a later switch finds this place.
void switch_context(void** from, void* to);

/// Stacks for many contexts. Pages that nobody touches take no memory.
class Stacks {
 public:
  static constexpr std::size_t kBytes = 256 * 1024;  ///< of each stack
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// At least so many; what ran on them before is gone.
  void reserve(std::size_t count);
  /// A context that calls `entry` on stack `k` when it is first switched to. `entry` must never return.
  void* start(std::size_t k, void (*entry)());

 private:
  char* memory_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace nestor::emulation
