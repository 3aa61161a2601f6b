// Leaks are asked for by the sanitizer's own function; who leaked is found by halves, each in a process of its own.
#include "fuzz/fuzz_leaks.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

extern "C" {
int __attribute__((weak)) __lsan_do_recoverable_leak_check();
}

namespace nestor::fuzz {
namespace {

/// Whether the program ends with an error when it runs these inputs and nothing else.
bool fails(const std::string& program, const std::vector<std::string>& inputs) {
  const std::filesystem::path folder = std::filesystem::current_path() / "leak.inputs";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (std::size_t k = 0; k < inputs.size(); ++k) std::ofstream(folder / std::to_string(k), std::ios::binary) << inputs[k];
  const pid_t child = fork();
  if (child == 0) {
    // The child writes its own crash.input, into the folder.
    const int nothing = open("/dev/null", O_WRONLY);
    dup2(nothing, 1);
    dup2(nothing, 2);
    if (chdir(folder.parent_path().c_str()) == 0)
      execl(program.c_str(), program.c_str(), "-trace=0", folder.c_str(), static_cast<char*>(nullptr));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::filesystem::remove_all(folder);
  return status != 0;
}

}  // namespace

bool leaked() { return __lsan_do_recoverable_leak_check != nullptr && __lsan_do_recoverable_leak_check() != 0; }

std::string leaking_input(const std::string& program, const std::vector<std::string>& inputs) {
  std::vector<std::string> suspects = inputs;
  while (suspects.size() > 1) {
    const auto middle = suspects.begin() + static_cast<std::ptrdiff_t>(suspects.size() / 2);
    const std::vector<std::string> first(suspects.begin(), middle), second(middle, suspects.end());
    if (fails(program, first)) {
      suspects = first;
    } else if (fails(program, second)) {
      suspects = second;
    } else {
      break;
    }
  }
  std::string all;
  for (const std::string& each : suspects) all += each;
  return all;
}

}  // namespace nestor::fuzz
