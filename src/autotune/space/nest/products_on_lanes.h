// Products that a GPU schedule leaves to plain lanes, and why.
#pragma once

#include "autotune/space/space_limits.h"
#include "db/records/trial_record.h"
#include "poly/nest/nest.h"

#include <string>

namespace nestor {

/// A kernel of a GPU, as far as it matters here.
struct TunedKernel {
  const std::string& steps;  ///< JSON, as records have them
  const DeviceIdentity& device;
  double median_ms = 0;             ///< measured; 0: not known
  GpuLimits limits = {};            ///< of the device, where it is a GPU
  std::string common_refusal = "";  ///< what most candidates on tensor cores were refused for; "": not known
};

/// Whether steps, as records have them, put products on tensor cores.
bool has_tensor_cores(const std::string& steps);

/// "dot: 8.2 ms at least of 65.1; both of its operands, qn and kn, are computed: store them in 16 bits by kernels of their own" for the
/// largest sum of products of matrices that the steps leave to lanes, although 16-bit tensors enter it and it takes a tenth of the time or more
/// there. "" where there is none, or the GPU has no tensor cores for it. `nest` is the definition.
std::string products_on_lanes(const Nest& nest, const Sizes& sizes, const TunedKernel& kernel);

}  // namespace nestor
