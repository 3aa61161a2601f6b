// Rewriting of tile trees: substitution of variables, used when loops move from a kernel to its launcher and back.
#pragma once

#include "codegen/tile/tile_program.h"

#include <functional>
#include <string>

namespace nestor::nvptx {

using IntRewriter = std::function<IntExpr(const IntExpr&)>;

/// Makes a condition that always holds, as where a loop has one iteration, a mere sequence.
void drop_if_true(TileNode& node);
TileAccess rewrite(const TileAccess& access, const IntRewriter& rewriter);
TileOp rewrite(const TileOp& op, const IntRewriter& rewriter);
TileTree rewrite(const TileTree& tree, const IntRewriter& rewriter);

/// The program with its fixed sizes written as numbers.
TileProgram with_fixed_sizes(const TileProgram& program);

TileTree make_sequence(std::vector<TileTree> children);
TileTree make_op(TileOp op);
/// A serial loop of step 1.
TileTree make_loop(const std::string& var, const IntExpr& lower, const IntExpr& upper, TileTree body);
/// The op with dim `d` as a loop around it.
TileTree with_loop_over(const TileOp& op, int d);

/// The tree without conditions but those directly inside loops that have nothing else there: conditions around loops are tested in them,
/// and those around ops are parts of their guards. An op that writes where its guard fails keeps its condition.
TileTree with_conditions_inside(const TileTree& tree);

/// Calls `visit` for every op of the tree in order; `in_parallel` says whether a parallel or gpu_block loop is around it.
void for_each_op(const TileTree& tree, const std::function<void(const TileOp&, bool in_parallel)>& visit,
                 bool in_parallel = false);

inline bool is_block_loop(const TileNode& node) {
  return node.kind == TileNode::Kind::loop && (node.loop_kind == LoopKind::parallel || node.loop_kind == LoopKind::gpu_block);
}

}  // namespace nestor::nvptx
