// The CUDA devices of this machine, through the driver library alone.
#pragma once

#include "db/database.h"

#include <string>
#include <vector>

namespace nestor {

struct CudaDevices {
  std::vector<DeviceIdentity> devices;
  std::string reason;  ///< why there are none; "" otherwise
};

/// Loads the driver if there is one. Never throws because there is none.
CudaDevices cuda_devices();

}  // namespace nestor
