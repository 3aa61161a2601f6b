// NestSpace: the candidates of a nest, derived from its structure alone.
#pragma once

#include "autotune/space/gpu/gpu_steps.h"
#include "autotune/space/space.h"
#include "autotune/trial/base_schedules.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace nestor {

/// What a candidate must fit, known before anything is compiled.
struct SpaceLimits {
  int threads = 1;                            ///< of a kernel
  std::int64_t scratch_bytes = 1 << 20;       ///< temporaries of one tile: a core's private cache
  std::int64_t shared_cache_bytes = 8 << 20;  ///< of all cores: larger outputs are written past the caches by default
  std::int64_t vector_elements = 8;           ///< f32 lanes
  std::optional<GpuLimits> gpu;               ///< candidates are for this GPU; what stands above is for a CPU
};

/// `schedules` holds the nest whose schedules are searched, and must outlive the space; `sizes` are complete.
std::unique_ptr<Space> make_nest_space(BaseSchedules& schedules, const Sizes& sizes, const SpaceLimits& limits);

/// Limits of this machine.
SpaceLimits host_space_limits(int threads);
/// Limits of a GPU: compute capability times ten, bytes of shared memory that a block may take, multiprocessors.
SpaceLimits gpu_space_limits(int sm, std::int64_t shared_bytes, int units);

}  // namespace nestor
