// Paths to ops, in a kernel's body and in its block plan, in one form: what loops and conditions around an op give (block_check.h, 1.).
#pragma once

#include "codegen/gpu/simt/proof/block_proof.h"

namespace nestor::nvptx {

/// A variable around an op or a dim of it: lower, lower + step, ... below upper.
struct PathLoop {
  std::string var;
  IntExpr lower, upper;
  std::int64_t step = 1;
  const void* node = nullptr;  ///< of a loop around the op; null: a dim
  bool reduced = false;
  /// The values are those of trips: lower is the value at this trip, upper the number of trips (undefined where it is not known).
  bool of_trips = false;
};

struct OpPath {
  const TileOp* op = nullptr;
  int number = -1;  ///< of the plan's op
  std::vector<PathLoop> loops;
  std::vector<IntExpr> conditions;
};

/// Ops of a kernel's body in order.
std::vector<OpPath> body_paths(const TileTree& body);
/// The path to an op of the plan. A resident block's work tiles and their coordinates are left out, as the body has no loops over blocks.
OpPath plan_path(const BlockProof& proof, const OpSite& site);

bool same_expr(const IntExpr& a, const IntExpr& b);  ///< the same linear form over the same other terms
bool same_access(const TileAccess& a, const TileAccess& b);

/// The body's op as prefix sums have it: without the dim that is summed over, with terms read where their element stands. Why it has no such
/// form, or "".
std::string prefix_difference(const BlockProof& proof, const TileOp& body, const PrefixPlan& prefix, TileOp& terms);

/// Do both paths lead over the same values? `ahead`: trips by which a copy is early. `left_out`: loops of the body that the plan's op
/// need not be in.
std::string path_difference(const OpPath& body, const OpPath& plan, int ahead, bool may_leave_loops);

/// Loops around both ops, whatever stands in place of them: numbers of the innermost ones' depth.
std::size_t common_loops(const OpPath& a, const OpPath& b);

/// Work tiles of resident blocks: each of the grid's coordinates once.
void prove_work_tiles(BlockProof& proof);

}  // namespace nestor::nvptx
