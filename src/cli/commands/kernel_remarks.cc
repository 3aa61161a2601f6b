// Remarks as lines and as JSON.
#include "cli/commands/kernel_remarks.h"

#include "api/report/device_roofs.h"
#include "autotune/tuner.h"
#include "cli/terminal/output.h"
#include "support/error.h"

#include <fmt/format.h>

namespace nestor::cli {
namespace {

/// "" where the analysis takes isl too long: no remark is worth an error.
template <class F>
std::string remark(const F& analyse) {
  try {
    return analyse();
  } catch (const UserError&) {
    return "";
  }
}

}  // namespace

KernelRemarks remarks_on(const Nest& nest, const Sizes& sizes, TunedKernel kernel) {
  if (const auto gpu = space_limits(kernel.device).gpu) kernel.limits = *gpu;
  return {remark([&] { return products_on_lanes(nest, sizes, kernel); }),
          remark([&] { return far_from_roofs(nest, sizes, kernel.device, kernel.median_ms); })};
}

void print(const KernelRemarks& remarks) {
  if (!remarks.lanes.empty()) print(fmt::format("products on lanes: {}", remarks.lanes));
  if (!remarks.far.empty()) print(fmt::format("far from the device's limits: {}", remarks.far));
}

void add_to(nlohmann::json& json, const KernelRemarks& remarks) {
  if (!remarks.lanes.empty()) json["products_on_lanes"] = remarks.lanes;
  if (!remarks.far.empty()) json["far_from_roofs"] = remarks.far;
}

}  // namespace nestor::cli
