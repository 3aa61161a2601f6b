// Caches of this machine, and the limits of a GPU.
#include "autotune/space/space_limits.h"

#include "db/devices/host_identity.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdlib>

namespace nestor {

int sm_of(const DeviceIdentity& device) {
  const GpuLimits newest;
  const int sm = device.arch.starts_with("sm_") ? std::atoi(device.arch.c_str() + 3) : newest.sm;
  return sm >= newest.sm ? newest.sm : 80;
}

SpaceLimits limits_of(const DeviceIdentity& device) {
  if (device.kind != "cuda") return host_space_limits(device.units);
  const GpuLimits usual;
  const nlohmann::json details = nlohmann::json::parse(device.details, nullptr, false);
  const std::int64_t shared =
      details.is_object() ? details.value("shared_bytes_per_block", usual.shared_bytes) : usual.shared_bytes;
  return gpu_space_limits(sm_of(device), shared, device.units);
}

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
