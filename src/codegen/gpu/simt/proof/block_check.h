// Proof that a block plan's threads compute what the kernel's body says, from the finished plan alone: it looks at the plan and at the
// body, and shares no code with the passes that made it. It holds for all sizes, unless the plan has conditions, which the kernel tests.
//
// The argument.
//  1. Instances. Loops, conditions and dims around each op of the plan give the values that they give in the body; a dim may have become a
//     loop, a loop over blocks one over work tiles. Ops that touch the same buffer, one of them writing, stand in the body's order. Copies that
//     are made once for all trips read inputs alone; copies ahead of their trip are followed event by event (4.).
//  2. Points. Threads are lane + lanes * group. The layout's lanes and groups are all threads, each once; a row goes to the group (row / run mod
//     groups), a column to the lane (column / vector mod lanes), so every point of an op's rows and columns has one thread, and all
//     other dims are run through by that thread in order. Extents that slots are counted from are upper bounds of the real ones. A
//     vector starts and ends where the extents and the conditions on sizes and addresses let it. Sums of a window's rows are
//     added up together: each has its own terms in its own order, and nothing that it reads is written meanwhile. A sum that reads
//     other elements of what it writes never reads its own; rows of such sums are made together where what they all read is done.
//  3. Who meets. Two points of an op with different rows or columns touch no common element if one of them writes it. So their order, and
//     which thread has them, does not matter, and reductions alone bring several points together: over columns (lanes of a warp by
//     shuffles, which needs a power of two, warps through a place of their own) or over groups. Each thread with a part puts it into
//     the combination once. What no column or row tells apart is computed by all threads alike in registers, and by the first in memory.
//     Blocks of the grid touch no common element of memory if one of them writes it.
//  4. Registers. All accesses to a tile in registers give the same element to a slot of a thread, so nobody reads what another thread has
//     written, and who writes an element does so in all threads that hold it. The circular buffer of copies ahead is run for every number of trips up
//     to where its state repeats: the tile holds the copy of its own trip whenever it is read.
//  5. Order. Two accesses by different threads to one element of memory, one of them a write, have a barrier of the block (of the cluster, if
//     one shares the ops) on every path from one to the other, loops' ways back among them. Conditions, bounds and thus barriers are the
//     same for all threads.
//  6. Places. What lives in shared memory at the same time does not overlap, and lies within the block's bytes.
//  7. A fused reduction's lead has a warp's own value from its op to the follower's end: only mediators read it there, and what they write
//     is read by the follower, or behind it through the correction.
//
// Elements are told apart by linear arithmetic over positions within their extents first (block_meet.h), and by isl where that leaves
// something open. A place where two threads meet is a refutation, with an example; what cannot be decided is said to be open.
#pragma once

#include "codegen/gpu/simt/plan/block_plan.h"

#include <string>
#include <vector>

namespace nestor::nvptx {

struct BlockCertificate {
  std::vector<std::string> proved;      ///< sentences, one a fact; meaningful without the others only
  std::vector<std::string> violations;  ///< what is wrong: op, element, threads, sizes where there is an example
  std::vector<std::string> unproved;    ///< what could not be decided
  bool holds() const { return violations.empty() && unproved.empty(); }
};

/// Never throws for a plan that is wrong or too hard.
BlockCertificate check_block_plan(const BlockPlan& plan);

}  // namespace nestor::nvptx
