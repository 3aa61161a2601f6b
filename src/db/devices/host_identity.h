// The CPU of this process as a device.
#pragma once

#include "db/records/trial_record.h"

namespace nestor {

/// Logical CPUs this process may use.
int host_threads();

/// This machine, running kernels with `threads` threads (0: all it may use). Tuner and runtime must both use this, so that
/// one finds what the other stored.
DeviceIdentity host_device(int threads = 0);

}  // namespace nestor
