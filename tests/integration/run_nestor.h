// Runs the nestor program as a user would, in a folder of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace nestor::test {

inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// Runs `nestor args...` with `input` on standard input; `prefix` goes before the program (a wrapper, variables). The program
/// sees no GPU unless `prefix` names a driver: results do not depend on the machine.
inline Outcome run_nestor(const std::vector<std::string>& args, const std::string& input = "", const std::string& prefix = "") {
  const TemporaryFolder folder;
  write_whole(folder.file("in"), input);
  std::string command = "env NESTOR_LIBCUDA=/nonexistent " + prefix + " " + shell_quoted(NESTOR_PROGRAM);
  for (const std::string& arg : args) command += " " + shell_quoted(arg);
  command += " <" + folder.file("in") + " >" + folder.file("out") + " 2>" + folder.file("err");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_whole(folder.file("out")),
          read_whole(folder.file("err"))};
}

}  // namespace nestor::test
