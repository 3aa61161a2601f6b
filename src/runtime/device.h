// Device: where kernels are loaded and launched. The host now; each further kind of device is one more class.
#pragma once

#include "db/database.h"
#include "runtime/launch_plan.h"
#include "support/launch_recipe.h"

#include <memory>
#include <string_view>

namespace nestor {

/// A kernel loaded on a device. Safe to use from several threads; keeps what it needs of its device alive.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  /// Runs a launch that LaunchPlan has checked; returns when it is done.
  virtual void launch(const PreparedLaunch& launch) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceIdentity& identity() const = 0;
  /// Throws UserError when the kernel is not for this device, or its code is damaged.
  virtual std::shared_ptr<const LoadedKernel> load(const KernelRecord& kernel, const LaunchRecipe& recipe) const = 0;
};

/// "host" (with so many threads) or "cuda". Throws UserError for any other name and for a device that is not here.
std::unique_ptr<Device> make_device(std::string_view name, int threads);

}  // namespace nestor
