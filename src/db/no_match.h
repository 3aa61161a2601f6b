// Why a database has no kernel for what was asked: which of operator, variant, nest, device and sizes fits nothing.
#pragma once

#include "db/database.h"

#include <string>
#include <vector>

namespace nestor {

/// What was asked for. Empty: any.
struct Asked {
  std::string op, variant, digest;
  Sizes sizes;
  std::vector<DeviceIdentity> devices;  ///< on any of these
};

/// "no record is of an operator 'matmull'; did you mean 'matmul'?", "matmul has records of f16 and f32, none of 'f64'", and so on: the first
/// thing asked for that no record has. `records`: of all databases that were consulted.
std::string why_no_match(const std::vector<Database::ProblemSummary>& records, const Asked& asked);

}  // namespace nestor
