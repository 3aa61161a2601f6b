// The signal handler sets a flag; a later signal gets the default action.
#include "cli/terminal/interrupt.h"

#include <csignal>
#include <cstdint>
#include <ctime>

namespace nestor::cli {
namespace {

std::atomic<bool> interrupted{false}, terminating{false};
std::atomic<std::int64_t> first_ms{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free,
              "a signal handler may set only lock-free variables");

/// One Ctrl-C may arrive more than once: sent to the process and to its group.
constexpr std::int64_t kOnePress_ms = 500;

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1000000;
}

void on_signal(int signal) {
  if (signal == SIGTERM) terminating = true;
  if (!interrupted.exchange(true)) {
    first_ms = now_ms();
  } else if (now_ms() - first_ms >= kOnePress_ms) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupted = terminating = false;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
}

InterruptGuard::~InterruptGuard() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

const std::atomic<bool>* InterruptGuard::flag() const { return &interrupted; }
bool InterruptGuard::terminated() const { return terminating; }

}  // namespace nestor::cli
