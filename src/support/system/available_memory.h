// How much memory this process may still take, and the refusal of what does not fit.
#pragma once

#include "support/system/lack_of_resources.h"

#include <cstdint>
#include <string>

namespace nestor {

/// Bytes that something is about to take.
struct MemoryNeed {
  std::int64_t touched = 0;   ///< pages that will be written
  std::int64_t reserved = 0;  ///< address space, where it is more than that
};

struct AvailableMemory {
  std::int64_t bytes = 0;
  std::string limit;  ///< what sets it: "this machine", "the cgroup /user.slice", "ulimit -v"
};

/// Least of what the machine has available (swap is not counted), what each cgroup around this process leaves, and what its limits
/// of address space and data leave. `root` stands before /proc and /sys. Without any of them: the largest number.
AvailableMemory available_memory(const std::string& root = "");

/// The same of address space: RLIMIT_AS alone.
AvailableMemory available_address_space();

/// Throws LackOfResources when that is more than there is: "WHAT needs 3.7 TiB of memory; this machine has 12.1 GiB available".
void require_memory(const MemoryNeed& need, const std::string& what, const std::string& root = "");

/// a + b and a * b of sizes that are not negative; the largest number where they do not fit.
std::int64_t saturating_add(std::int64_t a, std::int64_t b);
std::int64_t saturating_multiply(std::int64_t a, std::int64_t b);

/// "512 bytes", "12.1 MiB", "3.7 TiB"
std::string bytes_text(std::int64_t bytes);

}  // namespace nestor
