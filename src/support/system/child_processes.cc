// Waits in small steps: a stopped process sends nothing.
#include "support/system/child_processes.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nestor {

void end_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

bool wait_for_children(std::vector<pid_t> children, double seconds, const std::atomic<bool>* stop) {
  const auto start = std::chrono::steady_clock::now();
  bool good = true;
  while (!children.empty()) {
    const bool late = (stop != nullptr && stop->load()) ||
                      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds;
    std::erase_if(children, [&](pid_t child) {
      int status = 0;
      if (late) kill(child, SIGKILL);
      const pid_t ended = waitpid(child, &status, late ? 0 : WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
      good = good && ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      return true;
    });
    if (!children.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return good;
}

}  // namespace nestor
