// Reads /proc/meminfo, the cgroups of both versions and the limits of this process.
#include "support/system/available_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

namespace nestor {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

/// The first number in a file; nothing where there is none ("max").
std::optional<std::int64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The number behind a word at the start of a line.
std::int64_t field_of(const std::string& path, std::string_view field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field) && line.size() > field.size() && (line[field.size()] == ' ' || line[field.size()] == ':'))
      return std::strtoll(line.c_str() + field.size() + 1, nullptr, 10);
  }
  return -1;
}

/// The names of the files of a cgroup's memory, by version.
struct CgroupFiles {
  const char *limit, *usage, *inactive, *active;
};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "inactive_file", "active_file"};

void take_least(AvailableMemory& least, std::int64_t bytes, const std::string& limit) {
  if (bytes < least.bytes) least = {std::max<std::int64_t>(bytes, 0), limit};
}

/// What the cgroup at `path` below `mount` and those around it leave; pages of files can be dropped.
void take_cgroups(AvailableMemory& least, const std::string& mount, std::string path, const CgroupFiles& files) {
  for (;;) {
    const std::string folder = mount + (path == "/" ? "" : path) + "/";
    const auto limit = number_in_file(folder + files.limit), usage = number_in_file(folder + files.usage);
    if (limit && usage) {
      const std::int64_t cached = std::max<std::int64_t>(field_of(folder + "memory.stat", files.inactive), 0) +
                                  std::max<std::int64_t>(field_of(folder + "memory.stat", files.active), 0);
      take_least(least, *limit - *usage + std::min(cached, *usage), "the cgroup " + (path.empty() ? "/" : path));
    }
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/'));
  }
}

void take_all_cgroups(AvailableMemory& least, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  const std::string folder = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    if (controllers == ",,") {
      take_cgroups(least, folder, path, kVersion2);
      take_cgroups(least, folder + "/unified", path, kVersion2);
    } else if (controllers.find(",memory,") != std::string::npos) {
      take_cgroups(least, folder + "/memory", path, kVersion1);
    }
  }
}

/// `pages`: what counts for this limit now.
void take_limit(AvailableMemory& least, __rlimit_resource resource, std::int64_t pages, const char* name) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || pages < 0) return;
  take_least(least, static_cast<std::int64_t>(limit.rlim_cur) - pages * sysconf(_SC_PAGESIZE), name);
}

/// Pages of this process: all of its address space, and data with stack.
struct OwnPages {
  std::int64_t all = -1, data = -1;
};
OwnPages own_pages() {
  std::ifstream file("/proc/self/statm");
  OwnPages pages;
  std::int64_t resident = 0, shared = 0, text = 0, library = 0;
  if (!(file >> pages.all >> resident >> shared >> text >> library >> pages.data)) return {};
  return pages;
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory least{kNoLimit, "this machine"};
  const std::int64_t kilobytes = field_of(root + "/proc/meminfo", "MemAvailable");
  if (kilobytes >= 0) take_least(least, kilobytes * 1024, "this machine");
  take_all_cgroups(least, root);
  const OwnPages pages = own_pages();
  take_limit(least, RLIMIT_DATA, pages.data, "ulimit -d");
  take_limit(least, RLIMIT_AS, pages.all, "ulimit -v");
  return least;
}

AvailableMemory available_address_space() {
  AvailableMemory least{kNoLimit, "ulimit -v"};
  take_limit(least, RLIMIT_AS, own_pages().all, "ulimit -v");
  return least;
}

void require_memory(const MemoryNeed& need, const std::string& what, const std::string& root) {
  const auto refuse = [&](std::int64_t bytes, const char* kind, const AvailableMemory& there) {
    throw LackOfResources(fmt::format("{} needs {} of {}; {} leaves {}: choose smaller sizes, or a machine with more memory",
                                      what, bytes_text(bytes), kind, there.limit, bytes_text(there.bytes)));
  };
  if (const AvailableMemory there = available_memory(root); need.touched > there.bytes) refuse(need.touched, "memory", there);
  if (const AvailableMemory there = available_address_space(); need.reserved > there.bytes)
    refuse(need.reserved, "address space", there);
}

std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kNoLimit : sum;
}

std::int64_t saturating_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kNoLimit : product;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 1 : 0, kUnits[unit]);
}

}  // namespace nestor
