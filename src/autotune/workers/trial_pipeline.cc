// The event loop behind a pipeline: jobs to compilers, code to devices, and what becomes of processes that die.
#include "autotune/workers/trial_pipeline.h"

#include "autotune/workers/pipeline_workers.h"
#include "autotune/workers/trial_messages.h"
#include "autotune/workers/worker_process.h"
#include "support/error.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

namespace nestor {
namespace {

struct Entry {
  std::int64_t ticket = 0;
  TrialJob job;
  std::optional<CompiledTrial> compiled;
};

struct Compiler {
  WorkerProcess process;
  std::optional<Entry> entry;
  WorkerClock::time_point deadline;
};

/// One job runs, the next one is there already: the device never waits for this process.
constexpr std::size_t kAhead = 2;
/// Starts in a row that may fail.
constexpr int kStarts = 3;

struct Device {
  WorkerProcess process;
  bool ready = false;
  int failed_starts = 0;
  std::deque<Entry> entries;
  WorkerClock::time_point deadline;  ///< of the first entry; of the start when not ready
};

}  // namespace

struct TrialPipeline::Impl {
  PipelineLimits limits;
  std::function<std::unique_ptr<TrialCompiler>()> make_compiler;
  std::function<std::unique_ptr<TrialDevice>(int)> make_device;
  const std::atomic<bool>* stop;
  std::vector<Compiler> compilers;
  std::vector<Device> devices;
  std::deque<Entry> waiting, compiled;
  std::deque<SettledTrial> settled;
  double best_ms = 0;
  int under_way = 0;

  bool stopped() const { return stop && stop->load(std::memory_order_relaxed); }

  void settle(Entry& entry, TrialOutcome outcome) {
    if (entry.compiled) {
      outcome.compile_ms = entry.compiled->compile_ms;
      if (outcome.report.empty()) outcome.report = entry.compiled->report;
      if (outcome.status == TrialStatus::ok) outcome.kernel = entry.compiled->kernel;
    }
    if (outcome.status == TrialStatus::ok && (best_ms == 0 || outcome.median_ms < best_ms)) best_ms = outcome.median_ms;
    settled.push_back({entry.ticket, std::move(outcome)});
    --under_way;
  }

  // Compiling.

  void start(Compiler& compiler) {
    compiler.process.start(limits.memory_limit, [&](int socket) { serve_compiler(socket, make_compiler); });
  }

  void hand_to_compilers() {
    for (Compiler& compiler : compilers) {
      if (waiting.empty()) return;
      if (compiler.entry) continue;
      const nlohmann::json message = job_to_json(waiting.front().job);
      if (!compiler.process.alive()) start(compiler);
      if (!send_message(compiler.process.socket(), message)) {
        // It died between two jobs.
        compiler.process.end(true);
        start(compiler);
        send_message(compiler.process.socket(), message);
      }
      compiler.entry = std::move(waiting.front());
      waiting.pop_front();
      compiler.deadline = after_seconds(limits.compile_timeout_s);
    }
  }

  void hear(Compiler& compiler) {
    const auto message = receive_message(compiler.process.socket());
    if (!compiler.entry) {  // died while idle
      compiler.process.end(true);
      return;
    }
    Entry entry = std::move(*compiler.entry);
    compiler.entry.reset();
    if (!message) {
      settle(entry, failed_outcome(TrialStatus::crash, fmt::format("worker {} while compiling", compiler.process.end(false))));
    } else if (message->contains("outcome")) {
      settle(entry, outcome_from_json(message->at("outcome")));
    } else {
      entry.compiled = compiled_from_json(message->at("compiled"));
      compiled.push_back(std::move(entry));
    }
  }

  // Running.

  void start(Device& device) {
    const int number = static_cast<int>(&device - devices.data());
    device.ready = false;
    device.process.start(0, [&](int socket) { serve_device(socket, [&] { return make_device(number); }); });
    device.deadline = after_seconds(limits.start_timeout_s);
    for (const Entry& entry : device.entries) send(device, entry);
  }

  void send(Device& device, const Entry& entry) {
    TrialJob job = entry.job;
    // What others took meanwhile.
    if (best_ms > 0 && (job.best_ms == 0 || best_ms < job.best_ms)) job.best_ms = best_ms;
    nlohmann::json message = job_to_json(job);
    message["compiled"] = compiled_to_json(*entry.compiled);
    send_message(device.process.socket(), message);  // a dead process is noticed when it is heard
  }

  void restart(Device& device) {
    device.process.end(true);
    start(device);
  }

  void hand_to_devices() {
    while (!compiled.empty()) {
      const auto least = std::min_element(devices.begin(), devices.end(),
                                          [](const Device& a, const Device& b) { return a.entries.size() < b.entries.size(); });
      if (least->entries.size() >= kAhead) return;
      if (!least->process.alive()) start(*least);
      least->entries.push_back(std::move(compiled.front()));
      compiled.pop_front();
      send(*least, least->entries.back());
      if (least->ready && least->entries.size() == 1) least->deadline = after_seconds(limits.run_timeout_s);
    }
  }

  void settle_front(Device& device, TrialOutcome outcome) {
    settle(device.entries.front(), std::move(outcome));
    device.entries.pop_front();
    device.deadline = after_seconds(limits.run_timeout_s);
  }

  void hear(Device& device) {
    const auto message = receive_message(device.process.socket());
    if (!message) return died(device);
    if (message->contains("error")) {
      device.process.end(true);
      const std::string text = message->at("error");
      if (message->at("user")) throw UserError(text);
      throw DeviceError(text);
    }
    if (!device.ready) {
      device.ready = true;
      device.failed_starts = 0;
      device.deadline = after_seconds(limits.run_timeout_s);
      return;
    }
    if (device.entries.empty()) return restart(device);  // an answer to nothing
    settle_front(device, outcome_from_json(message->at("outcome")));
    if (message->at("lost")) restart(device);
  }

  void died(Device& device) {
    const bool starting = !device.ready;
    const std::string death = device.process.end(true);
    if (starting && ++device.failed_starts >= kStarts) throw DeviceError("the process that uses the device " + death);
    if (!starting && !device.entries.empty()) {
      settle_front(device, failed_outcome(TrialStatus::crash, fmt::format("worker {} while running", death)));
    }
    start(device);
  }

  // Both.

  void enforce_deadlines() {
    const auto now = WorkerClock::now();
    for (Compiler& compiler : compilers) {
      if (!compiler.entry || now < compiler.deadline) continue;
      compiler.process.end(true);
      settle(*compiler.entry, failed_outcome(TrialStatus::timeout,
                                             fmt::format("no result after {:.1f} s of compiling", limits.compile_timeout_s)));
      compiler.entry.reset();
    }
    for (Device& device : devices) {
      if (!device.process.alive() || now < device.deadline || (device.ready && device.entries.empty())) continue;
      if (!device.ready) {
        throw DeviceError(
            fmt::format("the device was not ready after {:.0f} s: {}", limits.start_timeout_s, device.process.end(true)));
      }
      device.process.end(true);
      settle_front(
          device, failed_outcome(TrialStatus::timeout, fmt::format("no result after {:.1f} s of running", limits.run_timeout_s)));
      start(device);
    }
  }

  void drop(Entry& entry) { settle(entry, stopped_outcome()); }

  /// What no device has.
  void abandon() {
    for (Compiler& compiler : compilers) {
      if (!compiler.entry) continue;
      compiler.process.end(true);
      drop(*compiler.entry);
      compiler.entry.reset();
    }
    for (std::deque<Entry>* queue : {&compiled, &waiting}) {
      for (Entry& entry : *queue) drop(entry);
      queue->clear();
    }
  }

  void stop_all() {
    abandon();
    for (Device& device : devices) {
      if (!device.entries.empty()) device.process.end(true);
      for (Entry& entry : device.entries) drop(entry);
      device.entries.clear();
    }
  }

  /// Waits a little for any process to say something, and listens.
  void listen() {
    std::vector<pollfd> sockets;
    std::vector<std::function<void()>> hearers;
    for (Compiler& compiler : compilers) {
      if (!compiler.process.alive()) continue;
      sockets.push_back({compiler.process.socket(), POLLIN, 0});
      hearers.emplace_back([this, &compiler] { hear(compiler); });
    }
    for (Device& device : devices) {
      if (!device.process.alive()) continue;
      sockets.push_back({device.process.socket(), POLLIN, 0});
      hearers.emplace_back([this, &device] { hear(device); });
    }
    // Short waits, so that a stop flag is seen even when its signal went to another thread.
    const int ready = poll(sockets.data(), sockets.size(), 50);
    if (ready < 0 && errno != EINTR) internal_error("poll: {}", std::strerror(errno));
    for (std::size_t k = 0; ready > 0 && k < sockets.size(); ++k) {
      if (sockets[k].revents != 0) hearers[k]();
    }
  }

  void advance() {
    if (stopped()) return stop_all();
    hand_to_compilers();
    hand_to_devices();
    listen();
    hand_to_devices();
    enforce_deadlines();
  }
};

TrialPipeline::TrialPipeline(PipelineLimits limits, std::function<std::unique_ptr<TrialCompiler>()> make_compiler,
                             std::function<std::unique_ptr<TrialDevice>(int)> make_device, const std::atomic<bool>* stop)
    : impl_(new Impl{limits, std::move(make_compiler), std::move(make_device), stop, {}, {}, {}, {}, {}, 0, 0}) {
  impl_->compilers.resize(static_cast<std::size_t>(std::max(limits.compilers, 1)));
  impl_->devices.resize(static_cast<std::size_t>(std::max(limits.devices, 1)));
  for (Device& device : impl_->devices) impl_->start(device);
}

TrialPipeline::~TrialPipeline() = default;

int TrialPipeline::depth() const { return static_cast<int>(impl_->compilers.size() + kAhead * impl_->devices.size()); }

void TrialPipeline::submit(std::int64_t ticket, const TrialJob& job, bool first) {
  ++impl_->under_way;
  Entry entry{ticket, job, std::nullopt};
  first ? impl_->waiting.push_front(std::move(entry)) : impl_->waiting.push_back(std::move(entry));
  impl_->hand_to_compilers();
}

void TrialPipeline::submit(std::int64_t ticket, const TrialJob& job, CompiledTrial compiled) {
  ++impl_->under_way;
  impl_->compiled.push_back({ticket, job, std::move(compiled)});
}

SettledTrial TrialPipeline::next() {
  while (impl_->settled.empty()) {
    if (impl_->under_way == 0) internal_error("no trial is under way");
    impl_->advance();
  }
  SettledTrial first = std::move(impl_->settled.front());
  impl_->settled.pop_front();
  return first;
}

void TrialPipeline::abandon() { impl_->abandon(); }

TrialOutcome TrialPipeline::wait_for(std::int64_t ticket) {
  for (;;) {
    const auto found = std::find_if(impl_->settled.begin(), impl_->settled.end(),
                                    [&](const SettledTrial& trial) { return trial.ticket == ticket; });
    if (found != impl_->settled.end()) {
      TrialOutcome outcome = std::move(found->outcome);
      impl_->settled.erase(found);
      return outcome;
    }
    if (impl_->under_way == 0) internal_error("trial {} is not under way", ticket);
    impl_->advance();
  }
}

}  // namespace nestor
