// KernelState: what stands behind a Kernel and behind a nestor_kernel.
#pragma once

#include "runtime/device.h"
#include "runtime/launch_plan.h"

#include <memory>
#include <string>

namespace nestor {

struct KernelState {
  MatchKind match = MatchKind::none;
  double distance = 0;
  std::string info;  ///< JSON
  LaunchPlan plan;
  std::shared_ptr<const LoadedKernel> loaded;

  void launch(std::span<const TensorArg> tensors, std::span<const NamedSize> sizes, std::span<const NamedScalar> scalars,
              const LaunchOptions& options) const {
    PreparedLaunch prepared;
    plan.prepare(tensors, sizes, scalars, prepared);
    loaded->launch(prepared, options, plan);
  }
};

}  // namespace nestor
