// Functions without their domain.
#pragma once

#include <isl/cpp.h>

#include <optional>

#include "poly/isl/context.h"

namespace nestor {

/// The affine function of a single-valued relation { A[x] -> B[y] }, for all x; nothing where it has several pieces.
std::optional<isl::multi_aff> whole_function(const isl::map& relation);

}  // namespace nestor
