// Caches of this machine, and the limits of a GPU.
#include "autotune/space/space_limits.h"

#include "db/devices/host_identity.h"

#include <unistd.h>

namespace nestor {

SpaceLimits gpu_space_limits(int sm, std::int64_t shared_bytes, int units) {
  SpaceLimits limits;
  limits.gpu = GpuLimits{};
  limits.gpu->sm = sm;
  limits.gpu->shared_bytes = shared_bytes;
  limits.gpu->units = units;
  return limits;
}

SpaceLimits host_space_limits(int threads) {
  SpaceLimits limits;
  limits.threads = threads > 0 ? threads : host_threads();
  const long private_cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (private_cache > 0) limits.scratch_bytes = 2 * private_cache;
  const long shared_cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (shared_cache > 0) limits.shared_cache_bytes = shared_cache;
  return limits;
}

}  // namespace nestor
