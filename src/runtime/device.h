// Device: where kernels are loaded and launched. Each kind of device is one class.
#pragma once

#include "db/database.h"
#include "runtime/launch_plan.h"
#include "support/launch_recipe.h"

#include <memory>
#include <string>
#include <string_view>

namespace nestor {

/// A kernel loaded on a device. Safe to use from several threads; keeps what it needs of its device alive.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  /// Runs a launch that LaunchPlan has checked, as Kernel::launch promises for this device. `plan` is what checked it.
  virtual void launch(const PreparedLaunch& launch, const LaunchOptions& options, const LaunchPlan& plan) const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceIdentity& identity() const = 0;
  virtual std::string name() const = 0;  ///< "host", "cuda:0"
  /// Throws UserError when the kernel is not for this device, or its code is damaged.
  virtual std::shared_ptr<const LoadedKernel> load(const KernelRecord& kernel, const LaunchRecipe& recipe) const = 0;
};

std::unique_ptr<Device> make_host_device(int threads);
std::unique_ptr<Device> make_cuda_device(int ordinal);

/// "host" (with so many threads), "cuda" or "cuda:0", "cuda:1", ... Throws UserError for any other name and for a device that
/// is not here.
std::unique_ptr<Device> make_device(std::string_view name, int threads);

}  // namespace nestor
