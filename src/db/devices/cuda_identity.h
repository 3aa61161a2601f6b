// A GPU as the database knows devices.
#pragma once

#include "db/records/trial_record.h"
#include "device/cuda.h"

namespace nestor {

/// Tuner and runtime must both use this, so that one finds what the other stored.
DeviceIdentity cuda_device_identity(const CudaIdentity& gpu);

}  // namespace nestor
