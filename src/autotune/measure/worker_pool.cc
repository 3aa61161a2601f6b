// Worker processes: forking, time limits, replacement of dead ones, and what each way of dying is called.
#include "autotune/measure/host_measurer.h"
#include "autotune/measure/trial_messages.h"
#include "support/error.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

namespace nestor {
namespace {

using Clock = std::chrono::steady_clock;

TrialOutcome failure(TrialStatus status, std::string reason) {
  TrialOutcome outcome;
  outcome.status = status;
  outcome.reason = std::move(reason);
  return outcome;
}

/// Runs `work`; whatever it throws becomes an outcome.
template <class F>
TrialOutcome guarded(F&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return failure(TrialStatus::crash, "out of memory");
  } catch (const UserError& error) {
    return failure(TrialStatus::illegal, error.what());
  } catch (const std::exception& error) {
    return failure(TrialStatus::compile_error, error.what());
  }
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

/// The life of a worker: one message is answered by one message, until the tuner hangs up.
[[noreturn]] void serve(int socket, const WorkerLimits& limits,
                        const std::function<std::unique_ptr<TrialRunner>()>& make_runner) {
  limit_resources(limits.memory_limit);
  std::unique_ptr<TrialRunner> runner;
  TrialJob job;
  while (const auto message = receive_message(socket)) {
    nlohmann::json answer;
    if (message->contains("steps")) {
      bool ended = true;
      const TrialOutcome outcome = guarded([&] {
        job = job_from_json(*message);
        if (!runner) runner = make_runner();
        auto early = runner->prepare(job);
        ended = early.has_value();
        return early ? std::move(*early) : TrialOutcome{};
      });
      answer = outcome_to_json(outcome);
      answer["ended"] = ended;
    } else {
      answer = outcome_to_json(guarded([&] { return runner->run(job); }));
    }
    if (!send_message(socket, answer)) break;
  }
  _exit(0);
}

struct Worker {
  pid_t process = -1;
  int socket = -1;
  int errors = -1;  ///< memory file that takes the worker's standard error

  bool alive() const { return process > 0; }
};

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

std::string describe_death(int status, int errors) {
  std::string text = WIFSIGNALED(status) ? fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)))
                                         : fmt::format("exited with code {}", WEXITSTATUS(status));
  const std::string said = last_line(errors);
  return said.empty() ? text : text + ": " + said;
}

}  // namespace

struct WorkerPool::Impl {
  WorkerLimits limits;
  std::function<std::unique_ptr<TrialRunner>()> make_runner;
  const std::atomic<bool>* stop;
  std::vector<Worker> workers;

  bool stopped() const { return stop && stop->load(std::memory_order_relaxed); }

  void start(Worker& worker) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) internal_error("socketpair: {}", std::strerror(errno));
    worker.errors = memfd_create("nestor-worker-stderr", MFD_CLOEXEC);
    std::fflush(nullptr);
    const pid_t tuner = getpid();
    const pid_t process = fork();
    if (process < 0) internal_error("fork: {}", std::strerror(errno));
    if (process == 0) {
      // A worker dies with its tuner, and leaves Ctrl-C to it.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != tuner) _exit(0);
      std::signal(SIGINT, SIG_IGN);
      std::signal(SIGTERM, SIG_DFL);
      close(sockets[0]);
      for (const Worker& other : workers) {
        if (other.alive()) close(other.socket);
      }
      if (worker.errors >= 0) dup2(worker.errors, STDERR_FILENO);
      serve(sockets[1], limits, make_runner);
    }
    close(sockets[1]);
    worker.process = process;
    worker.socket = sockets[0];
  }

  /// Ends a worker and returns how it died.
  std::string end(Worker& worker, bool kill_it) {
    if (!worker.alive()) return "";
    if (kill_it) kill(worker.process, SIGKILL);
    int status = 0;
    while (waitpid(worker.process, &status, 0) < 0 && errno == EINTR) {}
    const std::string death = describe_death(status, worker.errors);
    close(worker.socket);
    if (worker.errors >= 0) close(worker.errors);
    worker = {};
    return death;
  }

  /// The worker's answer, or what its silence means.
  TrialOutcome await(Worker& worker, Clock::time_point deadline, double limit_s, const char* phase, bool* ended) {
    if (ended) *ended = true;
    for (;;) {
      if (stopped()) {
        end(worker, true);
        return failure(TrialStatus::crash, kStoppedReason);
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      pollfd waiting{worker.socket, POLLIN, 0};
      // Short waits, so that a stop flag is seen even when its signal went to another thread.
      const int ready = poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 50)));
      if (ready > 0) break;
      if (ready < 0 && errno != EINTR) internal_error("poll: {}", std::strerror(errno));
      if (left <= 0) {
        end(worker, true);
        return failure(TrialStatus::timeout, fmt::format("no result after {:.1f} s of {}", limit_s, phase));
      }
    }
    const auto message = receive_message(worker.socket);
    if (!message) return failure(TrialStatus::crash, fmt::format("worker {} while {}", end(worker, false), phase));
    try {
      if (ended) *ended = message->at("ended");
      return outcome_from_json(*message);
    } catch (const std::exception& error) {
      end(worker, true);
      return failure(TrialStatus::crash, fmt::format("worker answered nonsense while {}: {}", phase, error.what()));
    }
  }

  /// Hands out one job a worker: all compile at once, then each runs with the machine to itself.
  void measure_some(const std::vector<TrialJob>& jobs, std::size_t first, std::size_t count,
                    std::vector<TrialOutcome>& outcomes) {
    std::vector<Clock::time_point> deadlines(count);
    for (std::size_t k = 0; k < count; ++k) {
      Worker& worker = workers[k];
      const nlohmann::json message = job_to_json(jobs[first + k]);
      // A worker that died between two trials is found out here.
      if (!worker.alive()) start(worker);
      if (!send_message(worker.socket, message)) {
        end(worker, true);
        start(worker);
        send_message(worker.socket, message);
      }
      deadlines[k] = after(limits.prepare_timeout_s);
    }
    std::vector<bool> open(count);
    for (std::size_t k = 0; k < count; ++k) {
      bool ended = true;
      outcomes[first + k] = await(workers[k], deadlines[k], limits.prepare_timeout_s, "compiling", &ended);
      open[k] = !ended;
    }
    for (std::size_t k = 0; k < count; ++k) {
      if (!open[k]) continue;
      if (stopped()) {
        outcomes[first + k] = failure(TrialStatus::crash, kStoppedReason);
        continue;
      }
      send_message(workers[k].socket, {{"run", true}});
      outcomes[first + k] = await(workers[k], after(limits.run_timeout_s), limits.run_timeout_s, "running", nullptr);
    }
  }

  static Clock::time_point after(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
};

WorkerPool::WorkerPool(WorkerLimits limits, std::function<std::unique_ptr<TrialRunner>()> make_runner,
                       const std::atomic<bool>* stop)
    : impl_(new Impl{limits, std::move(make_runner), stop, std::vector<Worker>(std::max(limits.workers, 1))}) {}

WorkerPool::~WorkerPool() {
  for (Worker& worker : impl_->workers) impl_->end(worker, true);
}

std::vector<TrialOutcome> WorkerPool::measure(const std::vector<TrialJob>& jobs) {
  std::vector<TrialOutcome> outcomes(jobs.size());
  for (std::size_t first = 0; first < jobs.size(); first += impl_->workers.size()) {
    impl_->measure_some(jobs, first, std::min(impl_->workers.size(), jobs.size() - first), outcomes);
  }
  return outcomes;
}

}  // namespace nestor
