// Processes, pipes and turns.
#include "race.h"

#include "autotune/timing/cold_cache.h"
#include "support/error.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>

namespace nestor::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Puts the threads of this process before everything else on the machine. False when the system does not allow it.
bool go_first() {
  bool all = true;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    const sched_param priority{1};
    all = sched_setscheduler(std::stoi(thread.path().filename().string()), SCHED_FIFO, &priority) == 0 && all;
  }
  return all;
}

/// Where a contender leaves its first results and what went wrong; shared with the parent.
struct Board {
  char error[512] = {};
  std::size_t count = 0;
  float* results() { return reinterpret_cast<float*>(this + 1); }
};

std::size_t board_bytes(std::size_t elements) { return sizeof(Board) + elements * sizeof(float); }

class Process {
 public:
  Process(const Contender& contender, const RaceOptions& options) : name_(contender.name), options_(options) {
    void* memory =
        mmap(nullptr, board_bytes(options.elements), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || pipe(orders_) != 0 || pipe(answers_) != 0) user_error("no memory or pipe for {}", name_);
    board_ = new (memory) Board;
    child_ = fork();
    if (child_ < 0) user_error("cannot start a process: {}", std::strerror(errno));
    if (child_ == 0) {
      close(orders_[1]);
      close(answers_[0]);
      serve(contender);
      std::_Exit(0);
    }
    close(orders_[0]);
    close(answers_[1]);
  }

  ~Process() {
    const char quit = 'q';
    if (write(orders_[1], &quit, 1) != 1) kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(orders_[1]);
    close(answers_[0]);
    munmap(board_, board_bytes(options_.elements));
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The seconds or milliseconds that the process answers with; negative when it failed or is gone.
  double answer() {
    double value = -1;
    return read(answers_[0], &value, sizeof value) == sizeof value ? value : -1;
  }

  double run() {
    const char order = 'r';
    return write(orders_[1], &order, 1) == 1 ? answer() : -1;
  }

  std::string failure() {
    if (board_->error[0] != 0) return board_->error;
    int status = 0;
    if (waitpid(child_, &status, 0) != child_) return "its process is gone";
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return fmt::format("no result within {} s", options_.limit_s);
    return fmt::format("its process ended with status {}", status);
  }

  std::vector<float> results() const { return {board_->results(), board_->results() + board_->count}; }

 private:
  void tell(double value) const {
    if (write(answers_[1], &value, sizeof value) != sizeof value) std::_Exit(1);
  }

  void publish(const Prepared& prepared) {
    for (const std::span<const float> part : prepared.results) {
      if (board_->count + part.size() > options_.elements) user_error("{} has more results than expected", name_);
      std::memcpy(board_->results() + board_->count, part.data(), part.size_bytes());
      board_->count += part.size();
    }
  }

  void serve(const Contender& contender) {
    alarm(options_.limit_s);
    try {
      const auto start = Clock::now();
      const Prepared prepared = contender.prepare();
      prepared.run();
      const double prepare_s = seconds_since(start);
      publish(prepared);
      if (options_.realtime && !go_first()) user_error("no real-time priority: {}", std::strerror(errno));
      tell(prepare_s);
      ColdCache cold(options_.threads);
      for (char order = 0; read(orders_[0], &order, 1) == 1 && order == 'r';) {
        alarm(options_.limit_s);
        cold.flush();
        settle();
        const auto begin = Clock::now();
        prepared.run();
        tell(seconds_since(begin) * 1e3);
      }
    } catch (const std::exception& failure) {
      std::strncpy(board_->error, failure.what(), sizeof board_->error - 1);
    }
  }

  /// Lets the threads that flushed fall asleep, without letting this one cool down.
  static void settle() {
    const auto begin = Clock::now();
    while (seconds_since(begin) < 200e-6) {}
  }

  std::string name_;
  RaceOptions options_;
  Board* board_ = nullptr;
  int orders_[2] = {}, answers_[2] = {};
  pid_t child_ = -1;
};

bool is_hopeless(const std::vector<Entry>& entries, const Entry& entry, double factor) {
  if (entry.samples_ms.size() < 3 || entries.front().samples_ms.empty()) return false;
  const auto fastest = [](const Entry& e) { return *std::min_element(e.samples_ms.begin(), e.samples_ms.end()); };
  return fastest(entry) > factor * fastest(entries.front());
}

}  // namespace

std::vector<Entry> race(const std::vector<Contender>& contenders, const RaceOptions& options) {
  signal(SIGPIPE, SIG_IGN);
  std::vector<Entry> entries;
  std::vector<std::unique_ptr<Process>> processes;
  for (const Contender& contender : contenders) {
    auto process = std::make_unique<Process>(contender, options);
    Entry entry{contender.name, "", process->answer(), {}, {}};
    if (entry.prepare_s < 0) {
      entry.error = process->failure();
      process.reset();
    } else {
      entry.results = process->results();
    }
    entries.push_back(std::move(entry));
    processes.push_back(std::move(process));
  }
  const auto start = Clock::now();
  for (int round = 0; round < options.rounds && (round < 3 || seconds_since(start) < options.seconds); ++round) {
    for (std::size_t k = 0; k < entries.size(); ++k) {
      if (!processes[k] || is_hopeless(entries, entries[k], options.hopeless)) continue;
      const double ms = processes[k]->run();
      if (ms >= 0) {
        entries[k].samples_ms.push_back(ms);
        continue;
      }
      entries[k].error = processes[k]->failure();
      processes[k].reset();
    }
  }
  return entries;
}

}  // namespace nestor::bench
