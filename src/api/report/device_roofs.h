// Roofs: what a device can do at most, from what its identity says.
#pragma once

#include "api/report/nest_work.h"
#include "db/database.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace nestor {

/// One part of a device that a kernel may keep busy.
struct Roof {
  std::string name;       ///< "memory", "tensor cores, 16 bits", "f32 arithmetic", "special functions"
  double per_second = 0;  ///< bytes, or operations
};

/// Roofs of a device: memory first. Empty where its identity says too little, as a CPU's does.
std::vector<Roof> roofs_of(const DeviceIdentity& device);

/// Milliseconds that each roof alone asks for that work, in the order of the roofs.
std::vector<double> roof_times(const std::vector<Roof>& roofs, const NestWork& work);

/// "12 times the 0.41 ms that tensor cores, 16 bits alone ask for", where a nest with products for tensor cores takes more than ten times
/// what the nearest roof asks for; else "". Nothing is said of times below 20 us, which launches take.
std::string far_from_roofs(const Nest& nest, const Sizes& sizes, const DeviceIdentity& device, double median_ms);

}  // namespace nestor
