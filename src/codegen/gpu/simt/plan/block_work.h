// Work of a block plan: how long its threads take at least, by how many of them have something to do.
#pragma once

#include "codegen/gpu/simt/plan/block_plan.h"

#include <cstdint>
#include <map>
#include <string>

namespace nestor::nvptx {

/// Threads that have different elements of the op, of those that share one block's (or cluster's) work. `extents`: of its dims.
std::int64_t working_threads(const BlockOp& op, const std::vector<std::int64_t>& extents);

/// Clocks that a kernel's ops on global memory take, as if every thread had a new element, or vector, each `kElementClocks`: guessed low by
/// far for a block of few threads at work. `sizes`: all that the program has. 0 where extents cannot be told.
/// `units`: multiprocessors.
double least_clocks(const BlockPlan& plan, const std::map<std::string, std::int64_t>& sizes, int units);

/// Clocks of a thread for each element: loads of some eight elements under way, and half of what one takes from the L2 cache.
inline constexpr double kElementClocks = 16;

}  // namespace nestor::nvptx
