// Sums that count where conditions hold alone.
#pragma once

#include <optional>
#include <string>

#include "poly/nest/nest.h"

namespace nestor {

/// The nest where a definition adds sums s_e in place of terms select(c, s_e, 0), two of these or more, and s_e has its terms where c holds alone: it
/// is the 0 that it starts from elsewhere. Each s is a temporary of f32 with a sum alone in its loops and this one reader, which reads each element
/// once; c is affine. Nothing where the definition has none. The same values, infinities and NaN too.
std::optional<Nest> with_narrow_sums(const Nest& nest, const std::string& statement);

}  // namespace nestor
