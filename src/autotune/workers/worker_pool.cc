// A pool of worker processes: handing out jobs, time limits, replacement of dead workers.
#include "autotune/workers/worker_pool.h"

#include "autotune/workers/trial_messages.h"
#include "autotune/workers/worker_process.h"
#include "support/error.h"

#include <unistd.h>

#include <algorithm>

namespace nestor {
namespace {

/// The life of a worker: one message is answered by one message, until the tuner hangs up.
void serve(int socket, const std::function<std::unique_ptr<TrialRunner>()>& make_runner) {
  std::unique_ptr<TrialRunner> runner;
  TrialJob job;
  while (const auto message = receive_message(socket)) {
    nlohmann::json answer;
    if (message->contains("steps")) {
      bool ended = true;
      const TrialOutcome outcome = guarded_outcome([&] {
        job = job_from_json(*message);
        if (!runner) runner = make_runner();
        auto early = runner->prepare(job);
        ended = early.has_value();
        return early ? std::move(*early) : TrialOutcome{};
      });
      answer = outcome_to_json(outcome);
      answer["ended"] = ended;
    } else {
      answer = outcome_to_json(guarded_outcome([&] { return runner->run(job); }));
    }
    if (!send_message(socket, answer)) break;
  }
}

}  // namespace

struct WorkerPool::Impl {
  WorkerLimits limits;
  std::function<std::unique_ptr<TrialRunner>()> make_runner;
  const std::atomic<bool>* stop;
  std::vector<WorkerProcess> workers;

  bool stopped() const { return stop && stop->load(std::memory_order_relaxed); }

  void start(WorkerProcess& worker) {
    worker.start(limits.memory_limit, [&](int socket) { serve(socket, make_runner); });
  }

  /// The worker's answer, or what its silence means.
  TrialOutcome await(WorkerProcess& worker, WorkerClock::time_point deadline, double limit_s, const char* phase, bool* ended) {
    if (ended) *ended = true;
    while (stopped() || !wait_readable(worker, deadline)) {
      if (stopped()) {
        worker.end(true);
        return stopped_outcome();
      }
      if (WorkerClock::now() >= deadline) {
        worker.end(true);
        return failed_outcome(TrialStatus::timeout, fmt::format("no result after {:.1f} s of {}", limit_s, phase));
      }
    }
    const auto message = receive_message(worker.socket());
    if (!message) return failed_outcome(TrialStatus::crash, fmt::format("worker {} while {}", worker.end(false), phase));
    try {
      if (ended) *ended = message->at("ended");
      return outcome_from_json(*message);
    } catch (const std::exception& error) {
      worker.end(true);
      return failed_outcome(TrialStatus::crash, fmt::format("worker answered nonsense while {}: {}", phase, error.what()));
    }
  }

  /// Hands out one job a worker: all compile at once, then each runs with the machine to itself.
  void measure_some(const std::vector<TrialJob>& jobs, std::size_t first, std::size_t count,
                    std::vector<TrialOutcome>& outcomes) {
    std::vector<WorkerClock::time_point> deadlines(count);
    for (std::size_t k = 0; k < count; ++k) {
      WorkerProcess& worker = workers[k];
      const nlohmann::json message = job_to_json(jobs[first + k]);
      // Analysis leaves caches behind: a worker that has grown gives way to a new one.
      if (limits.memory_limit > 0 && worker.own_memory() > limits.memory_limit / 2) worker.end(true);
      // A worker that died between two trials is found out here.
      if (!worker.alive()) start(worker);
      if (!send_message(worker.socket(), message)) {
        worker.end(true);
        start(worker);
        send_message(worker.socket(), message);
      }
      deadlines[k] = after_seconds(limits.prepare_timeout_s);
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
        outcomes[first + k] = stopped_outcome();
        continue;
      }
      send_message(workers[k].socket(), {{"run", true}});
      outcomes[first + k] = await(workers[k], after_seconds(limits.run_timeout_s), limits.run_timeout_s, "running", nullptr);
    }
  }
};

WorkerPool::WorkerPool(WorkerLimits limits, std::function<std::unique_ptr<TrialRunner>()> make_runner,
                       const std::atomic<bool>* stop)
    : impl_(new Impl{limits, std::move(make_runner), stop, std::vector<WorkerProcess>(std::max(limits.workers, 1))}) {}

WorkerPool::~WorkerPool() = default;

std::vector<TrialOutcome> WorkerPool::measure(const std::vector<TrialJob>& jobs) {
  std::vector<TrialOutcome> outcomes(jobs.size());
  for (std::size_t first = 0; first < jobs.size(); first += impl_->workers.size()) {
    impl_->measure_some(jobs, first, std::min(impl_->workers.size(), jobs.size() - first), outcomes);
  }
  return outcomes;
}

}  // namespace nestor
