// Details hold what two devices of one model share, and which of them it was.
#include "db/devices/cuda_identity.h"

#include <nlohmann/json.hpp>

namespace nestor {

DeviceIdentity cuda_device_identity(const CudaIdentity& gpu) {
  const nlohmann::json details{{"l2_bytes", gpu.l2_bytes},
                               {"memory_bytes", gpu.memory_bytes},
                               {"clock_khz", gpu.clock_khz},
                               {"memory_clock_khz", gpu.memory_clock_khz},
                               {"memory_bus_bits", gpu.memory_bus_bits},
                               {"shared_bytes_per_block", gpu.shared_bytes_per_block},
                               {"shared_bytes_per_unit", gpu.shared_bytes_per_unit},
                               {"registers_per_unit", gpu.registers_per_unit},
                               {"threads_per_unit", gpu.threads_per_unit},
                               {"clusters", gpu.clusters},
                               {"uuid", gpu.uuid},
                               {"driver_cuda_version", gpu.driver_version}};
  DeviceIdentity identity;
  identity.kind = "cuda";
  identity.name = gpu.name;
  identity.arch = gpu.arch();
  identity.units = gpu.units;
  identity.details = details.dump();
  return identity;
}

}  // namespace nestor
