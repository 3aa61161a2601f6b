// ProcessTeam: this process and forked ones that do the same work, a share each, and meet between its parts.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <vector>

namespace nestor {

/// Processes that compute something in memory they share. No other thread may run where they are forked.
class ProcessTeam {
 public:
  /// Does `work` in so many processes, this one being number 0; all of it must be in memory that is shared by then. False: one of them failed,
  /// ended or could not be started, or `stop` was set, and what is there is of no use. An exception of this process's own goes on.
  static bool run(int processes, const std::function<void(ProcessTeam&)>& work, const std::atomic<bool>* stop = nullptr);

  int number() const { return number_; }
  int size() const { return size_; }
  /// Waits until all have come here; what they wrote before is seen by all then. Throws where that will not be.
  void meet();

 private:
  struct Shared {
    std::atomic<int> arrived{0}, meetings{0};
    std::atomic<bool> broken{false};
  };
  ProcessTeam(Shared& shared, int size, const std::atomic<bool>* stop) : shared_(shared), size_(size), stop_(stop) {}
  /// Has one of them ended?
  bool lost_one();
  void start();
  bool finish();

  Shared& shared_;
  int size_, number_ = 0;
  const std::atomic<bool>* stop_;
  std::vector<pid_t> children_;
  bool lost_ = false;  ///< one of them has ended
};

}  // namespace nestor
