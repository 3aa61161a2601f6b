// KernelState: what stands behind a Kernel and behind a nestor_kernel.
#pragma once

#include "runtime/device.h"
#include "runtime/launch_plan.h"

#include <memory>
#include <string>

namespace nestor {

/// A record's kernel, loaded on a device: one for all sizes that it serves.
struct KernelCore {
  std::string info;  ///< JSON
  LaunchPlan plan;
  std::shared_ptr<const LoadedKernel> loaded;
};

/// An answer to a query: small, since there may be one for each of very many sizes.
struct KernelState {
  MatchKind match = MatchKind::none;
  double distance = 0;
  std::shared_ptr<const KernelCore> core = nullptr;  ///< null: no kernel fits
  std::string reason = {};                           ///< why none does
  /// Some would, and none of them loads: an error, of the input or of the device.
  enum class Refused : std::uint8_t { no, user, device } refused = Refused::no;

  void launch(std::span<const TensorArg> tensors, std::span<const NamedSize> sizes, std::span<const NamedScalar> scalars,
              const LaunchOptions& options) const {
    PreparedLaunch prepared;
    core->plan.prepare(tensors, sizes, scalars, prepared);
    core->loaded->launch(prepared, options, core->plan);
  }
};

}  // namespace nestor
