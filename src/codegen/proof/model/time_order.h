// Which of two points comes first in a program's own time.
#pragma once

#include "codegen/proof/model/program_model.h"

#include <optional>

namespace nestor::proof {

/// ordered: the source must be over before the sink starts. combined: parts of one reduction that may be taken in any order, but not
/// by two tasks at once.
enum class OrderNeed : std::uint8_t { ordered, combined };

/// The first part of `pairs`, { [a's loops, dims] -> [b's loops, dims] }, that the program does not keep in order; nothing when it
/// keeps all of them. Loops over tasks and lanes keep no order between their iterations.
std::optional<isl::map> out_of_order(const isl::map& pairs, const Run& a, const Run& b, OrderNeed need);

/// Loops that both runs share in the program's time.
std::size_t shared_loops(const Run& a, const Run& b);

}  // namespace nestor::proof
