// Parallel loops on the caller's OpenMP threads, for processes that have some: threads of our own would fight with them for the cores.
#pragma once

#include "nestor/host_abi.h"

#include <memory>

namespace nestor {

/// nestor_host_services::parallel_for by teams of the process's OpenMP runtime (support/system/openmp_runtime.h). Several threads may
/// call at once (they take turns); from inside a task, tasks run on the calling thread.
class OpenMpLoops {
 public:
  /// Teams of at most `threads`, and no more than OpenMP would give.
  explicit OpenMpLoops(int threads);
  ~OpenMpLoops();
  OpenMpLoops(const OpenMpLoops&) = delete;
  OpenMpLoops& operator=(const OpenMpLoops&) = delete;

  /// The services to hand to a kernel, valid while this lives; null while the process has no OpenMP runtime.
  const nestor_host_services* services() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nestor
