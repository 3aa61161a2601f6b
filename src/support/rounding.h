// Rounding of counts to multiples.
#pragma once

#include <cstdint>

namespace nestor {

/// Least multiple from `value` on; both are positive or `value` is 0.
inline std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
/// a / b rounded up, for the same.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace nestor
