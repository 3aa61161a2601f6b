// Why a database has no kernel for what was asked: which of operator, variant, nest, device and sizes fits nothing.
#pragma once

#include "db/database.h"

#include <functional>

#include <string>
#include <vector>

namespace nestor {

/// What was asked for. Empty: any.
struct Asked {
  std::string op, variant, digest;
  Sizes sizes;
  std::vector<DeviceIdentity> devices;  ///< on any of these
  /// How many records of what is asked for are damaged: added to what is said.
  std::function<std::int64_t()> damaged = nullptr;
};

/// "no record is of an operator 'matmull'; did you mean 'matmul'?", "matmul has records of f16 and f32, none of 'f64'", and so on: the first
/// thing asked for that no record has. `records`: of all databases that were consulted.
std::string why_no_match(const std::vector<Database::ProblemSummary>& records, const Asked& asked);

}  // namespace nestor
