// A run of the nestor program that goes on while a test sends signals to it and to its processes.
#pragma once

#include "integration/run_nestor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

namespace nestor::test {

/// Polls until it holds.
inline bool within(double seconds, const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// Processes whose command line has that word; not those that have ended.
inline std::vector<pid_t> processes_with(const std::string& word) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (std::filesystem::directory_iterator each("/proc", gone), end; each != end; each.increment(gone)) {
    const std::string name = each->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (read_whole(each->path().string() + "/cmdline").find(word) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

class RunningNestor {
 public:
  RunningNestor(const std::vector<std::string>& args, const std::string& log) {
    std::vector<char*> words{const_cast<char*>(NESTOR_PROGRAM)};
    for (const std::string& arg : args) words.push_back(const_cast<char*>(arg.c_str()));
    words.push_back(nullptr);
    process_ = fork();
    if (process_ != 0) return;
    setenv("NESTOR_LIBCUDA", "/nonexistent", 1);
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    execv(NESTOR_PROGRAM, words.data());
    _exit(126);
  }
  ~RunningNestor() {
    if (code_) return;
    for (const pid_t child : children()) kill(child, SIGKILL);
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  RunningNestor(const RunningNestor&) = delete;
  RunningNestor& operator=(const RunningNestor&) = delete;

  void send(int signal) const { kill(process_, signal); }
  std::vector<pid_t> children() const {
    std::ifstream file("/proc/" + std::to_string(process_) + "/task/" + std::to_string(process_) + "/children");
    std::vector<pid_t> found;
    for (pid_t child = 0; file >> child;) found.push_back(child);
    return found;
  }
  /// The exit code (128 and the signal), if it ends within that time.
  std::optional<int> wait(double seconds) {
    int status = 0;
    const auto ended = [&] { return code_ || waitpid(process_, &status, WNOHANG) == process_; };
    if (!within(seconds, ended)) return std::nullopt;
    if (!code_) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return code_;
  }

 private:
  pid_t process_ = -1;
  std::optional<int> code_;
};

}  // namespace nestor::test
