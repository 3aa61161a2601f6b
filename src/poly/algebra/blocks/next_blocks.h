// Tables of next blocks: which block of columns, from each one on, is the next that has a point where a condition of data holds.
#pragma once

#include <isl/cpp.h>

#include <string>

#include "poly/nest/nest.h"

namespace nestor {

inline constexpr int kBlockPoints = 64;   ///< rows, or columns, of a block
inline constexpr int kNoBlock = 1 << 24;  ///< stands behind the last block that there is

/// { Statement[.., K] } as { Statement[.., J, K] : 0 <= J <= K }.
isl::set blocks_up_to(const isl::set& blocks);

/// Does element [.., J] of the temporary become the least J' >= J at which one condition holds, or kNoBlock? Then it is J itself exactly where the
/// condition holds at J, and no block between J and the element's value is one. And is it read for tests alone, [.., J] = J, each joined by "and" with a
/// condition that implies it?
bool tells_next_blocks(const Nest& nest, const std::string& tensor);

}  // namespace nestor
