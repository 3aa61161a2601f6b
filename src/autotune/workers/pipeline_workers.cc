// Loops of compiling and measuring processes.
#include "autotune/workers/pipeline_workers.h"

#include "autotune/workers/trial_messages.h"
#include "autotune/workers/worker_process.h"
#include "support/error.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace nestor {
namespace {

/// Reads messages on a thread of its own.
class Inbox {
 public:
  explicit Inbox(int socket) {
    std::thread([this, socket] {
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

}  // namespace

void serve_compiler(int socket, const std::function<std::unique_ptr<TrialCompiler>()>& make_compiler) {
  // What feeds a device comes first: a launch that is late would show in a measured time.
  constexpr int kYielding = 10;
  if (nice(kYielding) == -1) errno = 0;
  std::unique_ptr<TrialCompiler> compiler;
  while (const auto message = receive_message(socket)) {
    CompiledTrial compiled;
    bool ended = true;
    const TrialOutcome outcome = guarded_outcome([&] {
      const TrialJob job = job_from_json(*message);
      if (!compiler) compiler = make_compiler();
      auto early = compiler->compile(job, compiled);
      ended = early.has_value();
      return early ? std::move(*early) : TrialOutcome{};
    });
    const nlohmann::json answer =
        ended ? nlohmann::json{{"outcome", outcome_to_json(outcome)}} : nlohmann::json{{"compiled", compiled_to_json(compiled)}};
    if (!send_message(socket, answer)) return;
  }
}

void serve_device(int socket, const std::function<std::unique_ptr<TrialDevice>()>& make_device) {
  // Never destroyed: the process ends with _exit, and the thread may still be reading.
  auto& inbox = *new Inbox(socket);
  std::unique_ptr<TrialDevice> device;
  try {
    device = make_device();
  } catch (const UserError& error) {
    send_message(socket, {{"error", error.what()}, {"user", true}});
    return;
  } catch (const std::exception& error) {
    send_message(socket, {{"error", error.what()}, {"user", false}});
    return;
  }
  send_message(socket, {{"ready", true}});
  while (const auto message = inbox.take()) {
    const TrialOutcome outcome =
        guarded_outcome([&] { return device->run(job_from_json(*message), compiled_from_json(message->at("compiled"))); });
    const bool lost = outcome.status == TrialStatus::crash && !device->usable();
    if (!send_message(socket, {{"outcome", outcome_to_json(outcome)}, {"lost", lost}}) || lost) break;
  }
  // A lost context cannot be taken down in order.
  static_cast<void>(device.release());
}

}  // namespace nestor
