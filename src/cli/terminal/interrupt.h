// Ctrl-C as a flag that long work polls; a second Ctrl-C, half a second later or more, ends the program at once.
#pragma once

#include <atomic>

namespace nestor::cli {

/// Installs the handlers of SIGINT and SIGTERM for its lifetime.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  const std::atomic<bool>* flag() const;
  /// Did SIGTERM arrive? The program is to end then, not only what it is doing.
  bool terminated() const;
};

}  // namespace nestor::cli
