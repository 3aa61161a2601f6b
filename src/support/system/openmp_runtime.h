// The OpenMP runtime that some other library has loaded into this process, PyTorch for one. Nothing here links to one.
#pragma once

namespace nestor {

/// Functions of libgomp; libomp and libiomp5 have them, too.
struct OpenMpRuntime {
  /// Runs `body(data)` on a team of at most `threads` threads of the caller's, the caller among them.
  void (*parallel)(void (*body)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*thread_number)() = nullptr;  ///< of the calling thread in its team, from 0
  int (*max_threads)() = nullptr;    ///< that the calling thread's next team may have: OMP_NUM_THREADS, torch.set_num_threads
};

/// The one that was loaded first, or null. Looked for again when libraries have been loaded since; found, it stays. Costs some tens of
/// nanoseconds. A forked child has none: the team's threads are its parent's, and libgomp would wait for them.
const OpenMpRuntime* openmp_runtime();

}  // namespace nestor
