// SpaceLimits: what a candidate must fit on the machine that it is for.
#pragma once

#include <cstdint>
#include <optional>

namespace nestor {

/// What one GPU offers to a block of threads.
struct GpuLimits {
  int sm = 90;                            ///< compute capability times ten
  std::int64_t shared_bytes = 227 << 10;  ///< shared memory a block may take
  int most_threads = 1024;                ///< of a block
  int units = 132;                        ///< multiprocessors
  int most_cluster() const { return sm >= 90 ? 16 : 1; }
};

/// What a candidate must fit, known before anything is compiled.
struct SpaceLimits {
  int threads = 1;                            ///< of a kernel
  std::int64_t scratch_bytes = 1 << 20;       ///< temporaries of one tile: a core's private cache
  std::int64_t shared_cache_bytes = 8 << 20;  ///< of all cores: larger outputs are written past the caches by default
  std::int64_t vector_elements = 8;           ///< f32 lanes
  std::optional<GpuLimits> gpu;               ///< candidates are for this GPU; what stands above is for a CPU
};

/// Limits of this machine.
SpaceLimits host_space_limits(int threads);
/// Limits of a GPU: compute capability times ten, bytes of shared memory that a block may take, multiprocessors.
SpaceLimits gpu_space_limits(int sm, std::int64_t shared_bytes, int units);

}  // namespace nestor
