// JoinedIndex of an access: a dim that lies along the quotient and the remainder of what it is a part of.
#pragma once

#include "codegen/gpu/mma/plan/tensor_plan.h"

#include <optional>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// The two indices that use the variable, as quotient and remainder of one sum that moves with it; nothing: they have another form.
std::optional<JoinedIndex> joined_along(const std::vector<IntExpr>& index, const std::string& var);

/// A number that divides what the joined index is where the variable is 0 (0: it is 0).
std::int64_t multiple_of(const JoinedIndex& joined, const std::string& var);

}  // namespace nestor::nvptx
