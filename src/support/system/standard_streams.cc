// The place of a closed stream is held by a handle on a socket that can neither be used nor opened.
#include "support/system/standard_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace nestor {
namespace {

bool is_open(int file) { return fcntl(file, F_GETFD) >= 0; }

/// A descriptor above the standard streams.
int above_streams(int file) {
  if (file < 0 || file > STDERR_FILENO) return file;
  const int moved = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(file);
  return moved;
}

/// A handle (O_PATH) that refuses all reading and writing. A folder where there is no /proc: it cannot be opened for writing, either.
int refusing_handle() {
  const int socket = above_streams(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  int handle = -1;
  if (socket >= 0) {
    handle = above_streams(open(fmt::format("/proc/self/fd/{}", socket).c_str(), O_PATH | O_CLOEXEC));
    close(socket);
  }
  return handle >= 0 ? handle : above_streams(open("/", O_PATH | O_CLOEXEC));
}

}  // namespace

void occupy_standard_streams() {
  if (is_open(STDIN_FILENO) && is_open(STDOUT_FILENO) && is_open(STDERR_FILENO)) return;
  // Whatever is opened on the way gets a closed stream's number: those are taken first.
  int taken[STDERR_FILENO + 1] = {-1, -1, -1};
  for (int& each : taken) {
    each = open("/", O_PATH);
    if (each > STDERR_FILENO) {
      close(each);
      each = -1;
    }
    if (each < 0) break;
  }
  const int handle = refusing_handle();
  for (const int stream : taken) {
    if (stream >= 0 && handle >= 0) dup2(handle, stream);
  }
  if (handle >= 0) close(handle);
}

std::string open_failure(const std::string& path, int error) {
  struct stat status{};
  if (error == ENXIO && stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode))
    return "it is a standard stream that is closed, or a socket";
  if (error == EISDIR) return "it is a folder, not a file";
  return std::strerror(error);
}

}  // namespace nestor
