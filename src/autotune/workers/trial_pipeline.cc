// The event loop behind a pipeline: requests to the processes of each stage, and what becomes of processes that die.
#include "autotune/workers/trial_pipeline.h"

#include "autotune/workers/trial_messages.h"
#include "autotune/workers/trial_worker.h"
#include "autotune/workers/worker_process.h"
#include "support/error.h"
#include "support/system/available_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>

namespace nestor {
namespace {

/// One job runs, the next one is there already: a GPU never waits for this process.
constexpr std::size_t kAhead = 2;
/// How long devices wait for the best guesses to be compiled, while others are there and nothing has been measured.
constexpr double kFirstWait_s = 1;
/// Starts in a row that may fail.
constexpr int kStarts = 3;
/// Times that a candidate's process may be killed from outside, and rounds of all processes without anything settled in between.
constexpr int kMostKills = 3;
constexpr int kKilledRounds = 3;

struct Entry {
  std::int64_t ticket = 0;
  TrialRequest request;
  int kills = 0;   ///< of processes that worked on it
  int device = 0;  ///< that was given it last
};

/// A process, and what it has been given: it works on the first.
struct Worker {
  WorkerProcess process;
  int number = 0;
  bool ready = false;
  int failed_starts = 0;
  std::deque<Entry> entries;
};

/// The processes that do the same.
struct Stage {
  const char* who;    ///< "the process that compiles"
  const char* doing;  ///< "compiling"
  double timeout_s;
  std::int64_t memory_limit;
  std::size_t ahead;  ///< entries that a process has at once
  std::function<std::unique_ptr<TrialStage>(int number)> make;
  std::vector<Worker> workers;
  std::deque<Entry> waiting{};

  bool busy() const {
    return std::any_of(workers.begin(), workers.end(), [](const Worker& worker) { return !worker.entries.empty(); });
  }
};

std::vector<Worker> make_workers(int count) {
  std::vector<Worker> workers(static_cast<std::size_t>(std::max(count, 1)));
  for (std::size_t k = 0; k < workers.size(); ++k) workers[k].number = static_cast<int>(k);
  return workers;
}

/// What feeds a device comes first: a launch that is late would show in a measured time.
void yield_to_devices() {
  constexpr int kYielding = 10;
  if (nice(kYielding) == -1) errno = 0;
}

}  // namespace

struct TrialPipeline::Impl {
  PipelineLimits limits;
  const std::atomic<bool>* stop;
  Stage compiling, running;
  std::deque<SettledTrial> settled{};
  double best_ms = 0;
  int under_way = 0;
  std::size_t kills_in_a_row = 0;
  std::optional<WorkerClock::time_point> first_compiled{};
  std::function<void()> told{};  ///< called while it waits

  bool stopped() const { return stop && stop->load(std::memory_order_relaxed); }

  void settle(Entry& entry, TrialOutcome outcome) {
    if (const auto& compiled = entry.request.compiled) {
      outcome.compile_ms = compiled->compile_ms;
      if (outcome.report.empty()) outcome.report = compiled->report;
      if (outcome.status == TrialStatus::ok) {
        outcome.kernel = compiled->kernel;
        outcome.certificate = compiled->certificate;
      }
    }
    outcome.device = entry.device;
    if (outcome.status == TrialStatus::ok && (best_ms == 0 || outcome.median_ms < best_ms)) best_ms = outcome.median_ms;
    settled.push_back({entry.ticket, std::move(outcome)});
    --under_way;
  }

  Entry take_front(Stage& stage, Worker& worker) {
    Entry entry = std::move(worker.entries.front());
    worker.entries.pop_front();
    limit(stage, worker);
    return entry;
  }

  // Processes.

  /// The time that the first entry may take from now on.
  static void limit(const Stage& stage, Worker& worker) { worker.process.limit(worker.entries.empty() ? 0 : stage.timeout_s); }

  void start(Stage& stage, Worker& worker) {
    worker.process.end(true);
    worker.ready = false;
    worker.process.start(stage.memory_limit,
                         [&](int socket) { serve_trials(socket, [&] { return stage.make(worker.number); }, stage.ahead > 1); });
    worker.process.limit(limits.start_timeout_s);
    for (const Entry& entry : worker.entries) send(worker, entry);
  }

  /// False when the process is gone.
  bool send(Worker& worker, const Entry& entry) const {
    TrialRequest request = entry.request;
    // What others took meanwhile.
    double& to_beat = request.job.best_ms;
    if (best_ms > 0 && (to_beat == 0 || best_ms < to_beat)) to_beat = best_ms;
    return worker.process.send(request_to_json(request));
  }

  /// It died between two jobs, or analysis has left so much behind that it gives way to a new one.
  static bool worn_out(const Stage& stage, const Worker& worker) {
    return !worker.process.alive() || (stage.memory_limit > 0 && worker.process.own_memory() > stage.memory_limit / 2);
  }

  /// Who is to work on an entry next; null while all who may have enough to do.
  Worker* free_worker(Stage& stage, const Entry& entry) {
    const int wanted = &stage == &running ? entry.request.job.device : -1;
    if (wanted >= static_cast<int>(stage.workers.size())) internal_error("there is no device {}", wanted);
    Worker& least = wanted >= 0
                        ? stage.workers[wanted]
                        : *std::min_element(stage.workers.begin(), stage.workers.end(),
                                            [](const Worker& a, const Worker& b) { return a.entries.size() < b.entries.size(); });
    return least.entries.size() < stage.ahead ? &least : nullptr;
  }

  void hand_over(Stage& stage) {
    for (std::size_t k = 0; k < stage.waiting.size();) {
      Worker* free = free_worker(stage, stage.waiting[k]);
      if (free == nullptr) {
        ++k;
        continue;
      }
      Worker& least = *free;
      const bool idle = least.entries.empty();
      least.entries.push_back(std::move(stage.waiting[k]));
      stage.waiting.erase(stage.waiting.begin() + static_cast<std::ptrdiff_t>(k));
      if (&stage == &running) least.entries.back().device = least.number;
      // One that dies at work is noticed when it is heard.
      const bool gone = idle && worn_out(stage, least);
      const bool sent = !gone && send(least, least.entries.back());
      if (idle && !sent)
        start(stage, least);
      else if (idle && least.ready)
        limit(stage, least);
    }
  }

  void hand_over() {
    if (!limits.alternating || !running.busy()) hand_over(compiling);
    if (may_run() && (limits.alternating ? !compiling.busy() : !waits_for_earlier())) hand_over(running);
  }

  bool may_run() {
    if (limits.may_run && !running.waiting.empty() && limits.may_run()) limits.may_run = nullptr;
    return !limits.may_run;
  }

  /// A slow kernel that was compiled first would hold up the best guesses for seconds.
  bool waits_for_earlier() const {
    if (best_ms > 0 || running.waiting.empty() || !first_compiled) return false;
    if (std::chrono::duration<double>(WorkerClock::now() - *first_compiled).count() > kFirstWait_s) return false;
    const std::int64_t next = running.waiting.front().ticket;
    const auto is_earlier = [&](const Entry& entry) { return entry.ticket < next; };
    return std::any_of(compiling.waiting.begin(), compiling.waiting.end(), is_earlier) ||
           std::any_of(compiling.workers.begin(), compiling.workers.end(), [&](const Worker& worker) {
             return std::any_of(worker.entries.begin(), worker.entries.end(), is_earlier);
           });
  }

  /// What was proposed first is measured first.
  void wait_for_device(Entry entry) {
    if (!first_compiled) first_compiled = WorkerClock::now();
    const auto later = std::find_if(running.waiting.begin(), running.waiting.end(),
                                    [&](const Entry& other) { return other.ticket > entry.ticket; });
    running.waiting.insert(later, std::move(entry));
  }

  // What they say.

  void hear(Stage& stage, Worker& worker) {
    const Heard heard = worker.process.hear();
    if (heard.kind == Heard::Kind::message) return take(stage, worker, heard.message);
    if (heard.kind == Heard::Kind::death) {
      if (heard.outside) return killed(stage, worker, heard.death);
      if (!worker.ready && ++worker.failed_starts >= kStarts) throw DeviceError(fmt::format("{} {}", stage.who, heard.death));
      replace(stage, worker, failed_outcome(TrialStatus::crash, fmt::format("worker {} while {}", heard.death, stage.doing)));
    }
    if (heard.kind == Heard::Kind::too_late) {
      if (!worker.ready)
        throw DeviceError(fmt::format("{} was not ready after {:.0f} s: {}", stage.who, limits.start_timeout_s, heard.death));
      replace(stage, worker,
              failed_outcome(TrialStatus::timeout, fmt::format("no result after {:.1f} s of {}", stage.timeout_s, stage.doing)));
    }
  }

  /// Something outside ended it, which says nothing about what it worked on: that is tried again, or given up without a verdict.
  void killed(Stage& stage, Worker& worker, const std::string& death) {
    const std::size_t most = kKilledRounds * (compiling.workers.size() + running.workers.size());
    if (++kills_in_a_row >= most) {
      const AvailableMemory memory = available_memory();
      throw DeviceError(
          fmt::format("processes that compile or measure were killed from outside {} times in a row, at last {}: {}. {} leaves "
                      "{} of memory. Something "
                      "ends them, most likely because memory lacks; what was measured before is stored",
                      kills_in_a_row, stage.who, death, memory.limit, bytes_text(memory.bytes)));
    }
    const bool worked = worker.ready && !worker.entries.empty();
    if (worked && ++worker.entries.front().kills >= kMostKills) {
      Entry entry = take_front(stage, worker);
      settle(entry, outside_outcome(fmt::format("worker {} while {}, {} times", death, stage.doing, entry.kills)));
    }
    start(stage, worker);
  }

  /// `outcome`: of what it was working on.
  void replace(Stage& stage, Worker& worker, TrialOutcome outcome) {
    if (worker.ready && !worker.entries.empty()) {
      Entry entry = take_front(stage, worker);
      settle(entry, std::move(outcome));
    }
    start(stage, worker);
  }

  void take(Stage& stage, Worker& worker, const nlohmann::json& message) {
    WorkerAnswer answer;
    try {
      answer = answer_from_json(message);
    } catch (const std::exception& error) {
      const std::string reason = fmt::format("worker answered nonsense while {}: {}", stage.doing, error.what());
      return replace(stage, worker, failed_outcome(TrialStatus::crash, reason));
    }
    if (const auto* refusal = std::get_if<WorkerRefusal>(&answer)) {
      worker.process.end(true);
      if (refusal->fault == WorkerRefusal::Fault::resources) throw LackOfResources(refusal->reason);
      if (refusal->fault == WorkerRefusal::Fault::user) throw UserError(refusal->reason);
      throw DeviceError(refusal->reason);
    }
    if (std::holds_alternative<WorkerReady>(answer)) {
      worker.ready = true;
      worker.failed_starts = 0;
      return limit(stage, worker);
    }
    if (worker.entries.empty()) return start(stage, worker);  // an answer to nothing
    kills_in_a_row = 0;
    Entry entry = take_front(stage, worker);
    if (auto* compiled = std::get_if<CompiledTrial>(&answer)) {
      entry.request.compiled = std::move(*compiled);
      return wait_for_device(std::move(entry));
    }
    auto& end = std::get<TrialEnd>(answer);
    settle(entry, std::move(end.outcome));
    if (end.lost) start(stage, worker);
  }

  // Both stages.

  void drop(std::deque<Entry>& entries) {
    for (Entry& entry : entries) settle(entry, stopped_outcome());
    entries.clear();
  }

  void drop_work(Worker& worker) {
    if (worker.entries.empty()) return;
    worker.process.end(true);
    drop(worker.entries);
  }

  void drop_all(Stage& stage) {
    for (Worker& worker : stage.workers) drop_work(worker);
    drop(stage.waiting);
  }

  /// What no device has begun with.
  void abandon() {
    drop_all(compiling);
    drop(running.waiting);
    for (Worker& worker : running.workers) {
      if (!worker.ready) drop_work(worker);
    }
  }

  /// Listens; `waits`: a little for any process to say something.
  void listen(bool waits) {
    std::vector<std::pair<Stage*, Worker*>> speakers;
    std::vector<const WorkerProcess*> processes;
    for (Stage* stage : {&compiling, &running}) {
      for (Worker& worker : stage->workers) {
        if (!worker.process.alive()) continue;
        speakers.emplace_back(stage, &worker);
        processes.push_back(&worker.process);
      }
    }
    if (waits) {
      wait_for_any(processes);
      if (told) told();
    }
    for (const auto& [stage, worker] : speakers) {
      if (worker->process.alive()) hear(*stage, *worker);  // told() may have abandoned its job
    }
  }

  void advance(bool waits = true) {
    if (stopped()) {
      drop_all(compiling);
      return drop_all(running);
    }
    hand_over();
    listen(waits);
    hand_over();
  }
};

TrialPipeline::TrialPipeline(PipelineLimits limits, std::function<std::unique_ptr<TrialCompiler>()> make_compiler,
                             std::function<std::unique_ptr<TrialDevice>(int)> make_device, const std::atomic<bool>* stop) {
  const auto compile = [make = std::move(make_compiler)](int) -> std::unique_ptr<TrialStage> {
    yield_to_devices();
    return make();
  };
  // A process that reads ahead would disturb a run on the same processors.
  impl_.reset(new Impl{limits, stop,
                       Stage{"the process that compiles", "compiling", limits.compile_timeout_s, limits.memory_limit, 1, compile,
                             make_workers(limits.compilers)},
                       Stage{"the process that uses the device", "running", limits.run_timeout_s, limits.run_memory_limit,
                             limits.alternating ? 1 : kAhead, std::move(make_device), make_workers(limits.devices)}});
  for (Worker& device : impl_->running.workers) impl_->start(impl_->running, device);
}

TrialPipeline::~TrialPipeline() = default;
TrialPipeline::TrialPipeline(TrialPipeline&&) noexcept = default;

int TrialPipeline::depth() const {
  const std::size_t ahead = streaming() ? impl_->running.ahead * impl_->running.workers.size() : 0;
  return static_cast<int>(impl_->compiling.workers.size() + ahead);
}

bool TrialPipeline::streaming() const { return !impl_->limits.alternating; }

void TrialPipeline::submit(std::int64_t ticket, const TrialJob& job, bool first) {
  ++impl_->under_way;
  auto& waiting = impl_->compiling.waiting;
  waiting.insert(first ? waiting.begin() : waiting.end(), Entry{ticket, {job}});
  impl_->hand_over();
}

void TrialPipeline::submit(std::int64_t ticket, const TrialJob& job, CompiledTrial compiled) {
  ++impl_->under_way;
  impl_->running.waiting.push_back({ticket, {job, std::move(compiled)}});
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

bool TrialPipeline::has_settled() {
  if (impl_->settled.empty() && impl_->under_way > 0) impl_->advance(false);
  return !impl_->settled.empty();
}

void TrialPipeline::while_waiting(std::function<void()> told) { impl_->told = std::move(told); }

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
