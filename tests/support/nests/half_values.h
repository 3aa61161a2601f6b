// Values of nests with operands in f16.
#pragma once

#include "support/nests/sample_nests.h"

namespace nestor::samples {

inline constexpr ElementType kHalf = ElementType::f16;

/// A read of f16 in f32.
inline ScalarExpr wide(int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, kHalf)); }

}  // namespace nestor::samples
