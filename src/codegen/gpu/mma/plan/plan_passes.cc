// The small passes: whole terms of products, sums that stay in lanes.
#include "codegen/gpu/mma/plan/plan_passes.h"

#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/mask_cnf.h"
#include "support/error.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

void mark_loop_ops(const TileTree& tree, bool inside, std::vector<bool>& in_loop) {
  if (tree->kind == TileNode::Kind::op) in_loop.push_back(inside);
  for (const TileTree& child : tree->children) mark_loop_ops(child, inside || tree->kind == TileNode::Kind::loop, in_loop);
}

/// Is the condition on a product's terms no more than the end of an argument, beyond which copies bring zeros? `by_free`: the terms of its
/// operand in `ring` run over rows, not along the dense index.
bool ends_with_argument(const TensorPlan& plan, const CircularBuffer& ring, bool by_free, const IntExpr& condition) {
  const auto index = by_free ? static_cast<std::size_t>(ring.row_index) : ring.origin.size() - 1;
  const Affine last =
      affine_of(plan.buffer(ring.buffer).extents[index] - ring.origin[index] - IntExpr(1) - IntExpr::variable(kColumn));
  const std::vector<IntExpr> alternatives = alternatives_of(condition);
  return std::any_of(alternatives.begin(), alternatives.end(), [&](const IntExpr& distance) {
    const Affine beyond = affine_of(distance) - last;
    return beyond.is_constant() && beyond.constant >= 0;
  });
}

}  // namespace

/// Copies bring zeros beyond the end of an argument, and nothing else is left out of a tile: a product with both operands in shared memory
/// adds up whole tiles of what its sum is over. One that goes on over iterations needs no test then.
void require_whole_terms(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product || op.a_ring < 0) continue;
    for (const auto& [number, by_free] : {std::pair(op.a_ring, op.a_by_row), std::pair(op.b_ring, op.b_by_column)}) {
      const CircularBuffer& ring = plan.circular_buffers[static_cast<std::size_t>(number)];
      for (const IntExpr& condition : op.mask) {
        if (!condition.uses(kColumn) && op.op.initialize) continue;
        if (ends_with_argument(plan, ring, by_free, condition)) continue;
        user_error("Kernel '{}' cannot use tensor cores: {} adds up a part of its tile of {}, and not up to the end of {}: {}.",
                   plan.program->name, op.op.name, plan.buffer(ring.buffer).name, plan.buffer(ring.buffer).name, condition.str());
      }
    }
    if (!op.op.initialize) op.mask.clear();
  }
}

std::vector<FiniteOperand> finite_operands(const TensorPlan& plan) {
  std::vector<FiniteOperand> needed;
  for (const TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product || op.a_ring >= 0) continue;
    const CircularBuffer& ring = plan.circular_buffers[static_cast<std::size_t>(op.b_ring)];
    std::vector<std::string> cuts;
    for (const IntExpr& condition : op.mask) {
      if (!ends_with_argument(plan, ring, op.b_by_column, condition)) cuts.push_back(condition.str());
    }
    if (!cuts.empty())
      needed.push_back(
          {plan.buffer(ring.buffer).tensor, fmt::format("{} multiplies whole tiles of {} by weights that are 0 where {} fails",
                                                        op.op.name, plan.buffer(ring.buffer).name, fmt::join(cuts, " and "))});
  }
  return needed;
}

/// A sum over columns, one value a row, may stay in four parts while it is only added to and scaled.
void plan_sums(TensorPlan& plan, const TileTree& tree) {
  std::vector<bool> in_loop;
  mark_loop_ops(tree, false, in_loop);
  for (auto& [buffer, fragment] : plan.fragments) {
    if (fragment.columns > 0) continue;
    bool reduced = false, fits = true;
    for (std::size_t k = 0; k < plan.ops.size(); ++k) {
      const TileOp& op = plan.ops[k].op;
      const bool writes = op.write.buffer == buffer;
      const bool reads =
          std::any_of(op.reads.begin(), op.reads.end(), [&, b = buffer](const TileAccess& r) { return r.buffer == b; });
      if (writes && plan.ops[k].kind == TensorOp::Kind::reduce) {
        fits = fits && op.reduction == ReductionOp::add && in_loop[k];
        reduced = true;
      } else if (writes) {
        fits = fits && (writes_zero(op) || scales(op, buffer));
      } else if (reads) {
        fits = fits && !in_loop[k];
      }
    }
    fragment.thread_sums = reduced && fits;
  }
}

}  // namespace nestor::nvptx
