// WorkerProcess: a forked child that may crash, hang or eat memory without harm to the process that measures.
#pragma once

#include <sys/types.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nestor {

using WorkerClock = std::chrono::steady_clock;

/// Of any number of seconds; more than thirty years count as so many.
inline WorkerClock::time_point after_seconds(double seconds) {
  constexpr double kMost = 1e9;
  const std::chrono::duration<double> wait(std::min(seconds, kMost));
  return WorkerClock::now() + std::chrono::duration_cast<WorkerClock::duration>(wait);
}

inline double milliseconds_since(WorkerClock::time_point start) {
  return std::chrono::duration<double, std::milli>(WorkerClock::now() - start).count();
}

/// Moves so many bytes: `transfer` moves some from the given offset on, as read() and write() do, and is called again after signals. False where
/// it fails or the other end is gone.
bool transfer_all(std::size_t size, const std::function<ssize_t(std::size_t)>& transfer);

/// A message is length-prefixed CBOR. False when the other end is gone.
bool send_message(int socket, const nlohmann::json& message);
/// Blocks until a whole message is there; nothing when the other end is gone or sent what is no message.
std::optional<nlohmann::json> receive_message(int socket);

/// What a process said, or how its silence ended.
struct Heard {
  enum class Kind { nothing, message, death, too_late };
  Kind kind = Kind::nothing;
  nlohmann::json message{};
  std::string death{};  ///< of one that died or was too late, as WorkerProcess::end() says it
  bool outside =
      false;  ///< of one that died: a signal that no program sends itself ended it (SIGKILL, as the OOM killer does; SIGTERM)
};

/// A child that speaks through one socket. It ignores Ctrl-C, dies with its parent, leaves no core file,
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
  /// Forks; the child runs `serve(socket)` and exits. Throws LackOfResources when the system gives no process, or no file. `memory`: bytes of address space it may add to what it inherits (0: no
  /// limit).
  void start(std::int64_t memory, const std::function<void(int socket)>& serve);
  /// Ends the child (`kill_it`: with SIGKILL, its own children too) and says how it died: "killed by signal 11 (Segmentation
  /// fault)", with the last line it wrote on its standard error.
  std::string end(bool kill_it);
  /// Whether what ended it last came from outside, as Heard::outside says.
  bool ended_from_outside() const { return ended_from_outside_; }

  /// Its next message must come within that time from now; 0: whenever it likes.
  void limit(double seconds) { deadline_ = seconds > 0 ? after_seconds(seconds) : WorkerClock::time_point::max(); }
  /// What it said since, without waiting, also for the rest of a message. One that died or is too late is ended by that.
  Heard hear();
  /// Sends without waiting: what the socket does not take now follows while the process is heard. False when it is gone.
  bool send(const nlohmann::json& message);
  bool has_unsent() const { return !outgoing_.empty(); }
  /// The next message, or how the silence ended; nothing when `until` came first.
  Heard wait_and_hear(WorkerClock::time_point until = WorkerClock::time_point::max());

 private:
  enum class Received { nothing, part, whole, end };
  Received receive();
  bool send_some();
  void swap(WorkerProcess& other) noexcept {
    std::swap(process_, other.process_);
    std::swap(socket_, other.socket_);
    std::swap(errors_, other.errors_);
    std::swap(deadline_, other.deadline_);
    std::swap(incoming_, other.incoming_);
    std::swap(outgoing_, other.outgoing_);
    std::swap(ended_from_outside_, other.ended_from_outside_);
  }
  pid_t process_ = -1;
  int socket_ = -1;
  int errors_ = -1;
  bool ended_from_outside_ = false;
  WorkerClock::time_point deadline_ = WorkerClock::time_point::max();
  std::vector<std::uint8_t> incoming_;  ///< of the next message, with its length before it
  std::vector<std::uint8_t> outgoing_;  ///< not sent yet
};

/// Waits until one of them may have something to say, for 50 ms at most: a stop flag is seen even when its signal went to another thread.
void wait_for_any(const std::vector<const WorkerProcess*>& workers);

}  // namespace nestor
