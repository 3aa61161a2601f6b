// WorkerProcess: a forked child that may crash, hang or eat memory without harm to the process that measures.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace nestor {

using WorkerClock = std::chrono::steady_clock;

inline WorkerClock::time_point after_seconds(double seconds) {
  return WorkerClock::now() + std::chrono::duration_cast<WorkerClock::duration>(std::chrono::duration<double>(seconds));
}

/// A child that speaks through one socket (trial_messages.h). It ignores Ctrl-C, dies with its parent, leaves no core file,
/// and its standard error goes to memory, from where the reason of a death is taken. Not copyable, movable.
class WorkerProcess {
 public:
  WorkerProcess() = default;
  ~WorkerProcess() { end(true); }
  WorkerProcess(WorkerProcess&& other) noexcept { swap(other); }
  WorkerProcess& operator=(WorkerProcess&& other) noexcept {
    swap(other);
    return *this;
  }

  bool alive() const { return process_ > 0; }
  /// Memory of its own (not what it still shares with this process), in bytes; 0 when it is not alive.
  std::int64_t own_memory() const;
  int socket() const { return socket_; }
  /// Forks; the child runs `serve(socket)` and exits. `memory`: bytes of address space it may add to what it inherits (0: no
  /// limit).
  void start(std::int64_t memory, const std::function<void(int socket)>& serve);
  /// Ends the child (`kill_it`: with SIGKILL, its own children too) and says how it died: "killed by signal 11 (Segmentation
  /// fault)", with the last line it wrote on its standard error.
  std::string end(bool kill_it);

 private:
  void swap(WorkerProcess& other) noexcept {
    std::swap(process_, other.process_);
    std::swap(socket_, other.socket_);
    std::swap(errors_, other.errors_);
  }
  pid_t process_ = -1;
  int socket_ = -1;
  int errors_ = -1;
};

/// Waits until one of the workers has something to read, or `limit` passes; whether `worker` has. Short waits, so that a stop
/// flag is seen even when its signal went to another thread.
bool wait_readable(const WorkerProcess& worker, WorkerClock::time_point limit);

}  // namespace nestor
