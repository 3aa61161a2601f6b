// Threads and processes that the system may refuse: a refusal is an error, never an abort.
#pragma once

#include "support/system/lack_of_resources.h"

#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace nestor {

/// "cannot start WHAT: Resource temporarily unavailable; ..." with what limits threads and processes.
std::string start_failure(const std::string& what, int error);

/// A thread that runs `body`. Throws LackOfResources when the system gives none. `what`: "thread 3 of 8 of a kernel"
template <class Body>
std::thread start_thread(const std::string& what, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    throw LackOfResources(start_failure(what, error.code().value()));
  }
}

/// Threads that are waited for at the end of their scope, also when one of them could not be started.
class JoinedThreads {
 public:
  JoinedThreads() = default;
  ~JoinedThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;
  template <class Body>
  void start(const std::string& what, Body&& body) {
    threads_.reserve(threads_.size() + 1);
    threads_.push_back(start_thread(what, std::forward<Body>(body)));
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace nestor
