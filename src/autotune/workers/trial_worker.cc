// One loop for processes that compile and processes that measure.
#include "autotune/workers/trial_worker.h"

#include "autotune/workers/trial_messages.h"
#include "autotune/workers/worker_process.h"
#include "support/error.h"
#include "support/system/available_memory.h"
#include "support/system/start_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace nestor {
namespace {

/// Reads messages on a thread of its own.
class Inbox {
 public:
  explicit Inbox(int socket) {
    start_thread("the thread that reads requests", [this, socket] {
      for (;;) {
        auto message = receive_message(socket);
        const std::lock_guard lock(mutex_);
        const bool last = !message;
        messages_.push_back(std::move(message));
        arrived_.notify_one();
        if (last) return;
      }
    }).detach();
  }
  std::optional<nlohmann::json> take() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !messages_.empty(); });
    auto message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::optional<nlohmann::json>> messages_;
};

/// What the stage makes of a request.
WorkerAnswer answer_to(const nlohmann::json& message, TrialStage& stage) {
  CompiledTrial compiled;
  bool goes_on = false;
  const TrialOutcome outcome = guarded_outcome([&] {
    TrialRequest request = request_from_json(message);
    if (request.compiled) compiled = std::move(*request.compiled);
    auto ended = stage.work(request.job, compiled);
    goes_on = !ended;
    return ended.value_or(TrialOutcome{});
  });
  if (goes_on) return compiled;
  return TrialEnd{outcome, outcome.status == TrialStatus::crash && !stage.usable()};
}

}  // namespace

void serve_trials(int socket, const std::function<std::unique_ptr<TrialStage>()>& make_stage, bool reads_ahead) {
  Inbox* inbox = nullptr;
  const auto say = [socket](const WorkerAnswer& answer) { return send_message(socket, answer_to_json(answer)); };
  std::unique_ptr<TrialStage> stage;
  using Fault = WorkerRefusal::Fault;
  try {
    // Never destroyed: the process ends with _exit, and the thread may still be reading.
    if (reads_ahead) inbox = new Inbox(socket);
    stage = make_stage();
  } catch (const LackOfResources& error) {
    say(WorkerRefusal{error.what(), Fault::resources});
    return;
  } catch (const UserError& error) {
    say(WorkerRefusal{error.what(), Fault::user});
    return;
  } catch (const std::exception& error) {
    say(WorkerRefusal{error.what(), Fault::device});
    return;
  }
  if (!say(WorkerReady{})) return;
  while (const auto message = inbox ? inbox->take() : receive_message(socket)) {
    const WorkerAnswer answer = answer_to(*message, *stage);
    const TrialEnd* end = std::get_if<TrialEnd>(&answer);
    if (!say(answer) || (end && end->lost)) break;
  }
  // A lost context cannot be taken down in order.
  static_cast<void>(stage.release());
}

}  // namespace nestor
