// Forking workers, whole messages, and what each way of dying is called.
#include "autotune/workers/worker_process.h"

#include "support/debug.h"
#include "support/error.h"
#include "support/system/child_processes.h"
#include "support/system/start_thread.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string_view>

namespace nestor {
namespace {

/// The parent's ends of all sockets: a child must not hold those of its siblings open.
std::set<int>& open_sockets() {
  static std::set<int> sockets;
  return sockets;
}

constexpr std::uint64_t kLongestMessage = std::uint64_t{1} << 28;

/// Its length, then its CBOR.
std::vector<std::uint8_t> message_bytes(const nlohmann::json& message) {
  std::vector<std::uint8_t> bytes(sizeof(std::uint64_t));
  nlohmann::json::to_cbor(message, bytes);
  const std::uint64_t length = bytes.size() - sizeof(std::uint64_t);
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

void limit_resources(std::int64_t memory) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
#if !defined(__SANITIZE_ADDRESS__)
  if (memory <= 0) return;
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  const auto limit = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + memory);
  const rlimit address_space{limit, limit};
  setrlimit(RLIMIT_AS, &address_space);
#else
  (void)memory;
#endif
}

std::string last_line(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  if (size <= 0) return "";
  char text[400];
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(sizeof text));
  const ssize_t got = pread(file, text, sizeof text, from);
  std::string tail(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.pop_back();
  const auto line = tail.rfind('\n');
  return line == std::string::npos ? tail : tail.substr(line + 1);
}

/// A program may abort or fault; these are sent to it.
bool is_from_outside(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
}

std::string describe_death(int status, int errors) {
  std::string text = WIFSIGNALED(status) ? fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                                         : fmt::format("exited with code {}", WEXITSTATUS(status));
  const std::string said = last_line(errors);
  return said.empty() ? text : text + ": " + said;
}

}  // namespace

void WorkerProcess::start(std::int64_t memory, const std::function<void(int socket)>& serve) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    throw LackOfResources(fmt::format("cannot open a socket to a process: {}; see 'ulimit -n'", std::strerror(errno)));
  // Debug lines of workers are for whoever asked for them; otherwise what a worker says last explains its death.
  errors_ = debug_enabled(DebugSwitch::timing) ? -1 : memfd_create("nestor-worker-stderr", MFD_CLOEXEC);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t process = fork();
  if (process < 0) {
    const int error = errno;
    close(sockets[0]);
    close(sockets[1]);
    throw LackOfResources(start_failure("a process", error));
  }
  if (process == 0) {
    // A group of its own, so that the programs it runs (an assembler) can be ended with it.
    setpgid(0, 0);
    end_with_parent(parent);
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, SIG_DFL);
    close(sockets[0]);
    for (const int other : open_sockets()) close(other);
    open_sockets().clear();  // their numbers are free for workers of this process
    if (errors_ >= 0) dup2(errors_, STDERR_FILENO);
    limit_resources(memory);
    serve(sockets[1]);
    _exit(0);
  }
  setpgid(process, process);
  close(sockets[1]);
  process_ = process;
  socket_ = sockets[0];
  open_sockets().insert(socket_);
}

std::int64_t WorkerProcess::own_memory() const {
  if (!alive()) return 0;
  std::ifstream file("/proc/" + std::to_string(process_) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kPrivate = "Private_Dirty:";
    if (line.starts_with(kPrivate)) return std::strtoll(line.c_str() + kPrivate.size(), nullptr, 10) * 1024;
  }
  return 0;
}

std::string WorkerProcess::end(bool kill_it) {
  if (!alive()) return "";
  if (kill_it) {
    kill(-process_, SIGKILL);
    kill(process_, SIGKILL);
  }
  int status = 0;
  while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {}
  std::string death = describe_death(status, errors_);
  ended_from_outside_ = WIFSIGNALED(status) && is_from_outside(WTERMSIG(status));
  open_sockets().erase(socket_);
  close(socket_);
  if (errors_ >= 0) close(errors_);
  process_ = socket_ = errors_ = -1;
  incoming_.clear();
  outgoing_.clear();
  return death;
}

/// Takes what has come of one message. Bytes of the next one stay in the socket.
WorkerProcess::Received WorkerProcess::receive() {
  constexpr std::size_t kPart = std::size_t{1} << 16;
  const std::size_t before = incoming_.size();
  for (;;) {
    std::uint64_t length = 0;
    const std::size_t had = incoming_.size();
    if (had >= sizeof length) std::memcpy(&length, incoming_.data(), sizeof length);
    if (length > kLongestMessage) return Received::end;
    const std::size_t whole = sizeof length + length;
    if (had >= sizeof length && had == whole) return Received::whole;
    incoming_.resize(had + std::min(kPart, (had < sizeof length ? sizeof length : whole) - had));
    const ssize_t got = recv(socket_, incoming_.data() + had, incoming_.size() - had, MSG_DONTWAIT);
    const int error = errno;
    incoming_.resize(had + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got > 0 || (got < 0 && error == EINTR)) continue;
    if (got < 0 && (error == EAGAIN || error == EWOULDBLOCK)) return had > before ? Received::part : Received::nothing;
    return Received::end;
  }
}

bool WorkerProcess::send_some() {
  std::size_t sent = 0;
  bool gone = false;
  while (sent < outgoing_.size()) {
    const ssize_t moved = ::send(socket_, outgoing_.data() + sent, outgoing_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved < 0 && errno == EINTR) continue;
    gone = moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK;
    if (moved <= 0) break;
    sent += static_cast<std::size_t>(moved);
  }
  outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent));
  return !gone;
}

bool WorkerProcess::send(const nlohmann::json& message) {
  if (!alive()) return false;
  const std::vector<std::uint8_t> bytes = message_bytes(message);
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
  return send_some();
}

Heard WorkerProcess::hear() {
  const std::size_t unsent = outgoing_.size();
  send_some();  // one that is gone is noticed below
  const bool took = outgoing_.size() < unsent;
  const Received received = receive();
  if (received == Received::whole) {
    nlohmann::json message = nlohmann::json::from_cbor(incoming_.begin() + sizeof(std::uint64_t), incoming_.end(), true, false);
    incoming_.clear();
    if (!message.is_discarded()) return {Heard::Kind::message, std::move(message)};
  }
  if (received == Received::whole || received == Received::end) {
    const std::string death = end(true);
    return {Heard::Kind::death, {}, death, ended_from_outside_};
  }
  // One that speaks is no silent one, whenever this process comes to listen.
  if (took || received == Received::part || WorkerClock::now() < deadline_) return {};
  return {Heard::Kind::too_late, {}, end(true)};
}

Heard WorkerProcess::wait_and_hear(WorkerClock::time_point until) {
  for (;;) {
    Heard heard = hear();
    if (heard.kind != Heard::Kind::nothing || WorkerClock::now() >= until) return heard;
    wait_for_any({this});
  }
}

void wait_for_any(const std::vector<const WorkerProcess*>& workers) {
  std::vector<pollfd> sockets;
  sockets.reserve(workers.size());
  for (const WorkerProcess* worker : workers) {
    const int wanted = worker->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    sockets.push_back({worker->socket(), static_cast<short>(wanted), 0});
  }
  if (poll(sockets.data(), sockets.size(), 50) < 0 && errno != EINTR) internal_error("poll: {}", std::strerror(errno));
}

bool transfer_all(std::size_t size, const std::function<ssize_t(std::size_t)>& transfer) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t moved = transfer(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    done += static_cast<std::size_t>(moved);
  }
  return true;
}

bool send_message(int socket, const nlohmann::json& message) {
  const std::vector<std::uint8_t> bytes = message_bytes(message);
  return transfer_all(bytes.size(),
                      [&](std::size_t done) { return send(socket, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL); });
}

std::optional<nlohmann::json> receive_message(int socket) {
  const auto take = [&](void* data, std::size_t size) {
    char* bytes = static_cast<char*>(data);
    return transfer_all(size, [&](std::size_t done) { return recv(socket, bytes + done, size - done, 0); });
  };
  std::uint64_t length = 0;
  if (!take(&length, sizeof length) || length > kLongestMessage) return std::nullopt;
  std::vector<std::uint8_t> body(length);
  if (!take(body.data(), body.size())) return std::nullopt;
  nlohmann::json message = nlohmann::json::from_cbor(body, true, false);
  if (message.is_discarded()) return std::nullopt;
  return message;
}

}  // namespace nestor
