// Functions without their domain.
#pragma once

#include <isl/cpp.h>

#include <optional>
#include <vector>

#include "poly/isl/context.h"

namespace nestor {

/// The affine function of a relation { A[x] -> B[y] }, for all x; nothing where it is no function or has several pieces.
std::optional<isl::multi_aff> whole_function(const isl::map& relation);

/// The functions of a single-valued relation, one per range dimension, simpler than they are where the domain says something already. (The
/// relation without what its domain says may be no function any more.)
std::vector<isl::pw_aff> functions_on(const isl::map& relation, const isl::set& domain);

}  // namespace nestor
