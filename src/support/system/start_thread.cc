// Why the system starts no more threads or processes.
#include "support/system/start_thread.h"

#include <fmt/format.h>

#include <cstring>

namespace nestor {

std::string start_failure(const std::string& what, int error) {
  return fmt::format("cannot start {}: {}; see 'ulimit -u', 'ulimit -v' and the cgroup's pids.max, or ask for fewer threads",
                     what, std::strerror(error));
}

}  // namespace nestor
