// Sample points: one concrete point of a set, as numbers.
#pragma once

#include <isl/cpp.h>

#include <cstdint>
#include <vector>

namespace nestor {

/// The smallest point of a set without parameters that is not empty, or any point where finding the smallest takes too long.
std::vector<std::int64_t> smallest_point(const isl::set& set);

}  // namespace nestor
