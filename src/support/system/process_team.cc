// A counter of those who have come, in shared memory. Who waits long sleeps in between: there may be fewer processors than processes.
#include "support/system/process_team.h"

#include "support/system/child_processes.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <new>
#include <thread>

namespace nestor {
namespace {

constexpr int kSpins = 4096, kLook = 64;  ///< looks before a waiting process sleeps, and sleeps between looks at the others
constexpr double kLeave_s = 5;            ///< until those that are done with their work have ended

struct BrokenTeam {};

}  // namespace

bool ProcessTeam::lost_one() {
  if (number_ != 0) return false;  // children end with their parent
  std::erase_if(children_, [&](pid_t child) {
    const bool ended = waitpid(child, nullptr, WNOHANG) != 0;
    lost_ = lost_ || ended;
    return ended;
  });
  return lost_;
}

void ProcessTeam::meet() {
  const int meeting = shared_.meetings.load();
  if (shared_.arrived.fetch_add(1) + 1 == size_) {
    shared_.arrived.store(0);
    shared_.meetings.store(meeting + 1);
    return;
  }
  for (int looks = 0; shared_.meetings.load() == meeting; ++looks) {
    if (shared_.broken.load()) throw BrokenTeam{};
    if (looks < kSpins) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    const bool stopped = stop_ != nullptr && stop_->load();
    const bool lost = looks % kLook == 0 && lost_one();
    // Those who have come may have ended since, where this was the last meeting.
    if (!stopped && (!lost || shared_.meetings.load() != meeting)) continue;
    shared_.broken.store(true);
    throw BrokenTeam{};
  }
}

void ProcessTeam::start() {
  const pid_t parent = getpid();
  for (int p = 1; p < size_; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      end_with_parent(parent);
      number_ = p;
      children_.clear();
      return;
    }
    if (child < 0) {
      shared_.broken.store(true);
      return;
    }
    children_.push_back(child);
  }
}

bool ProcessTeam::finish() { return wait_for_children(std::move(children_), kLeave_s, stop_) && !shared_.broken.load(); }

bool ProcessTeam::run(int processes, const std::function<void(ProcessTeam&)>& work, const std::atomic<bool>* stop) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  auto* shared = new (memory) Shared;
  ProcessTeam team(*shared, processes, stop);
  team.start();
  bool good = false;
  try {
    if (!shared->broken.load()) {
      work(team);
      team.meet();
    }
    if (team.number_ != 0) _exit(0);
    good = team.finish();
  } catch (const BrokenTeam&) {
    if (team.number_ != 0) _exit(1);
    team.finish();
  } catch (...) {
    shared->broken.store(true);
    if (team.number_ != 0) _exit(1);
    team.finish();
    munmap(memory, sizeof(Shared));
    throw;
  }
  munmap(memory, sizeof(Shared));
  return good;
}

}  // namespace nestor
