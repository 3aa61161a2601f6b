// Asks libcuda, opened at run time, for its devices. Entry points and attribute numbers: CUDA driver API reference.
#include "api/cuda_devices.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <memory>

namespace nestor {
namespace {

// CUdevice_attribute values.
constexpr int kClockRate = 13;
constexpr int kMultiprocessors = 16;
constexpr int kMajor = 75;
constexpr int kMinor = 76;
constexpr int kSharedPerBlockOptin = 97;

struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*driver_version)(int*) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*device_name)(char*, int, int) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*device_memory)(std::size_t*, int) = nullptr;
};

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool load_driver(void* library, Driver& driver) {
  return load(library, "cuInit", driver.init) && load(library, "cuDriverGetVersion", driver.driver_version) &&
         load(library, "cuDeviceGetCount", driver.device_count) && load(library, "cuDeviceGet", driver.device_get) &&
         load(library, "cuDeviceGetName", driver.device_name) && load(library, "cuDeviceGetAttribute", driver.device_attribute) &&
         load(library, "cuDeviceTotalMem_v2", driver.device_memory);
}

DeviceIdentity identify(const Driver& driver, int ordinal) {
  int device = 0;
  driver.device_get(&device, ordinal);
  const auto attribute = [&](int which) {
    int value = 0;
    driver.device_attribute(&value, which, device);
    return value;
  };
  std::array<char, 256> name{};
  driver.device_name(name.data(), static_cast<int>(name.size()), device);
  std::size_t memory = 0;
  driver.device_memory(&memory, device);
  int version = 0;
  driver.driver_version(&version);
  const nlohmann::json details{{"clock_khz", attribute(kClockRate)},
                               {"memory_bytes", memory},
                               {"shared_bytes_per_block", attribute(kSharedPerBlockOptin)},
                               {"driver_cuda_version", version}};
  DeviceIdentity identity;
  identity.kind = "cuda";
  identity.name = name.data();
  identity.arch = fmt::format("sm_{}{}", attribute(kMajor), attribute(kMinor));
  identity.units = attribute(kMultiprocessors);
  identity.details = details.dump();
  return identity;
}

}  // namespace

CudaDevices cuda_devices() {
  const std::unique_ptr<void, int (*)(void*)> library(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), &dlclose);
  if (!library) return {{}, "libcuda.so.1 is not here"};
  Driver driver;
  if (!load_driver(library.get(), driver)) return {{}, "libcuda.so.1 lacks an entry point"};
  if (const int status = driver.init(0); status != 0) return {{}, fmt::format("cuInit failed with CUDA error {}", status)};
  int count = 0;
  if (const int status = driver.device_count(&count); status != 0)
    return {{}, fmt::format("cuDeviceGetCount failed with CUDA error {}", status)};
  CudaDevices found;
  for (int ordinal = 0; ordinal < count; ++ordinal) found.devices.push_back(identify(driver, ordinal));
  if (found.devices.empty()) found.reason = "the driver reports none";
  return found;
}

}  // namespace nestor
