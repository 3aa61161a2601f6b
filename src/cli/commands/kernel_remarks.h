// KernelRemarks: what may be wrong with the speed of a kernel, for tune, query and show.
#pragma once

#include "autotune/space/nest/products_on_lanes.h"

#include <nlohmann/json.hpp>

#include <string>

namespace nestor::cli {

struct KernelRemarks {
  std::string lanes;  ///< products that it leaves to plain lanes, and why; "": none
  std::string far;    ///< how far it is from what the device could do, if that is far; else ""
};

/// `sizes` are complete. The kernel's limits are found out here.
KernelRemarks remarks_on(const Nest& nest, const Sizes& sizes, TunedKernel kernel);

/// A line for each.
void print(const KernelRemarks& remarks);

/// Keys "products_on_lanes" and "far_from_roofs", where there is something to say.
void add_to(nlohmann::json& json, const KernelRemarks& remarks);

}  // namespace nestor::cli
