// Reads the CPU's identity from cpuid, /proc and /sys; nothing that changes between two runs.
#include "db/devices/host_identity.h"

#include "support/architecture.h"

#include <nlohmann/json.hpp>

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <fstream>

namespace nestor {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

/// What the firmware calls the machine: "" where that cannot be read.
std::string machine_model() {
  std::ifstream file("/sys/class/dmi/id/product_name");
  std::string model;
  std::getline(file, model);
  return model;
}

}  // namespace

int host_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

DeviceIdentity host_device(int threads) {
  DeviceIdentity device;
  device.kind = "host";
  device.name = cpu_model();
  device.arch = host_cpu_name();
  device.units = threads > 0 ? threads : host_threads();
  nlohmann::json details;
  details["l1d_bytes"] = std::max(0L, sysconf(_SC_LEVEL1_DCACHE_SIZE));
  details["l2_bytes"] = std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
  details["l3_bytes"] = std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE));
  details["cpus"] = std::max(1L, sysconf(_SC_NPROCESSORS_CONF));
  details["model"] = machine_model();
  // Rounded: the kernel's own share, which is missing here, changes between two starts.
  details["memory_gib"] = (static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) + (1 << 29)) >> 30;
  device.details = details.dump();
  return device;
}

}  // namespace nestor
