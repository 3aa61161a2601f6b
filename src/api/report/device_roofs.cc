// Rates of GPUs from clocks and widths of their identity.
#include "api/report/device_roofs.h"
#include "support/system/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace nestor {
namespace {

constexpr const char* kMemory = "memory";
constexpr const char* kTensor = "tensor cores, 16 bits";
constexpr const char* kScalar = "f32 arithmetic";
constexpr const char* kSpecial = "special functions";
constexpr double kSpecialLanes = 16;  ///< results a clock of one multiprocessor

/// Operations a clock of one multiprocessor on 16-bit operands; 0: not known.
double tensor_rate(int sm) { return sm >= 90 && sm < 100 ? 4096 : sm == 80 ? 2048 : 0; }
/// Fused operations count twice.
double scalar_rate(int sm) { return sm == 80 ? 128 : 256; }

double number_of(const nlohmann::json& details, const char* key) {
  const auto found = details.find(key);
  return found != details.end() && found->is_number() ? found->get<double>() : 0;
}

double work_for(const std::string& roof, const NestWork& work) {
  if (roof == kMemory) return work.bytes;
  if (roof == kTensor) return work.tensor_flops;
  return roof == kSpecial ? work.special : work.scalar_flops;
}

}  // namespace

std::vector<Roof> roofs_of(const DeviceIdentity& device) {
  if (device.kind != "cuda" || !device.arch.starts_with("sm_")) return {};
  const nlohmann::json details = json_or_discarded(device.details);
  if (!details.is_object()) return {};
  const int sm = std::atoi(device.arch.c_str() + 3);
  const double clock = 1e3 * number_of(details, "clock_khz");
  // Memory transfers twice a clock.
  const double memory = 2e3 * number_of(details, "memory_clock_khz") * number_of(details, "memory_bus_bits") / 8;
  if (sm < 80 || clock <= 0 || memory <= 0) return {};
  std::vector<Roof> roofs{{kMemory, memory}};
  if (tensor_rate(sm) > 0) roofs.push_back({kTensor, device.units * clock * tensor_rate(sm)});
  roofs.push_back({kScalar, device.units * clock * scalar_rate(sm)});
  roofs.push_back({kSpecial, device.units * clock * kSpecialLanes});
  return roofs;
}

std::vector<double> roof_times(const std::vector<Roof>& roofs, const NestWork& work) {
  std::vector<double> times;
  times.reserve(roofs.size());
  for (const Roof& roof : roofs) times.push_back(1e3 * work_for(roof.name, work) / roof.per_second);
  return times;
}

std::string far_from_roofs(const Nest& nest, const Sizes& sizes, const DeviceIdentity& device, double median_ms) {
  constexpr double kFar = 10, kLeastMs = 0.02;
  const std::vector<Roof> roofs = roofs_of(device);
  if (roofs.empty() || median_ms < kLeastMs) return "";
  const NestWork work = work_of(nest, sizes);
  if (work.tensor_flops <= 0) return "";
  const std::vector<double> times = roof_times(roofs, work);
  const auto nearest = std::max_element(times.begin(), times.end());
  if (*nearest <= 0 || median_ms <= kFar * *nearest) return "";
  return fmt::format("{:.0f} times the {:.2g} ms that {} alone ask for", median_ms / *nearest, *nearest,
                     roofs[static_cast<std::size_t>(nearest - times.begin())].name);
}

}  // namespace nestor
