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

/// Names in masks of what moves the indices of a circular buffer: its rows, and its dense elements; "": nothing that masks know.
struct Movers {
  const char *rows, *dense;
};

/// Of the first operand's tile all is known, of the second's its terms alone. `by_free`: memory runs along rows or columns, not along terms.
Movers movers_of_first(bool by_free) { return by_free ? Movers{kColumn, kRow} : Movers{kRow, kColumn}; }
Movers movers_of_second(bool by_free) { return by_free ? Movers{kColumn, ""} : Movers{"", kColumn}; }

/// Where the condition fails, does the tile lie before or beyond its argument? Copies bring zeros from there.
bool leaves_argument(const TensorPlan& plan, const CircularBuffer& ring, const Movers& movers, const IntExpr& condition) {
  const std::vector<IntExpr> alternatives = alternatives_of(condition);
  const auto fails_before = [&](const Affine& distance) {  // it is negative wherever the condition fails
    return std::any_of(alternatives.begin(), alternatives.end(), [&](const IntExpr& alternative) {
      const Affine gap = affine_of(alternative) - distance;
      return gap.is_constant() && gap.constant >= 0;
    });
  };
  const int dense = static_cast<int>(ring.origin.size()) - 1;
  for (int p = 0; p <= dense; ++p) {
    const char* mover = p == ring.row_index ? movers.rows : p == ring.pack_index ? kPack : p == dense ? movers.dense : nullptr;
    if (mover != nullptr && *mover == 0) continue;
    const IntExpr& origin = ring.origin[static_cast<std::size_t>(p)];
    const IntExpr index = mover == nullptr ? origin : origin + IntExpr::variable(mover);
    const IntExpr& extent = plan.buffer(ring.buffer).extents[static_cast<std::size_t>(p)];
    if (fails_before(affine_of(index)) || fails_before(affine_of(extent - IntExpr(1) - index))) return true;
  }
  return false;
}

}  // namespace

/// Copies bring zeros from before and beyond an argument, and nothing else is left out of a tile: a product with both operands in shared
/// memory adds up whole tiles of what its sum is over. What meets zeros of one operand alone has to be finite. A product that goes on over
/// iterations needs no test then.
void require_whole_terms(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product || op.a_ring < 0) continue;
    const CircularBuffer &a = plan.circular_buffers[static_cast<std::size_t>(op.a_ring)],
                         &b = plan.circular_buffers[static_cast<std::size_t>(op.b_ring)];
    for (const IntExpr& condition : op.mask) {
      if (!condition.uses(kColumn) && op.op.initialize) continue;
      const bool leaves_a = leaves_argument(plan, a, movers_of_first(op.a_by_row), condition),
                 leaves_b = leaves_argument(plan, b, movers_of_second(op.b_by_column), condition);
      if (leaves_a && leaves_b) continue;
      if (!leaves_a && !leaves_b)
        user_error("Kernel '{}' cannot use tensor cores: {} adds up a part of its tile of {}, and not up to the end of {}: {}.",
                   plan.program->name, op.op.name, plan.buffer(a.buffer).name, plan.buffer(a.buffer).name, condition.str());
      op.zeros_meet[leaves_a ? op.b_ring : op.a_ring].push_back(condition);
    }
    if (!op.op.initialize) op.mask.clear();
  }
}

std::vector<FiniteOperand> finite_operands(const TensorPlan& plan) {
  std::vector<FiniteOperand> needed;
  const auto need = [&](const TensorOp& op, int ring, const std::vector<std::string>& cuts) {
    if (cuts.empty()) return;
    const Buffer& buffer = plan.buffer(plan.circular_buffers[static_cast<std::size_t>(ring)].buffer);
    needed.push_back({buffer.tensor, fmt::format("{} multiplies whole tiles of {} by {} that are 0 where {} fails", op.op.name,
                                                 buffer.name, op.a_ring < 0 ? "weights" : "elements", fmt::join(cuts, " and "))});
  };
  for (const TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::product) continue;
    std::vector<std::string> cuts;
    if (op.a_ring < 0) {
      const CircularBuffer& ring = plan.circular_buffers[static_cast<std::size_t>(op.b_ring)];
      for (const IntExpr& condition : op.mask) {
        if (!leaves_argument(plan, ring, movers_of_second(op.b_by_column), condition)) cuts.push_back(condition.str());
      }
      need(op, op.b_ring, cuts);
    }
    for (const auto& [ring, conditions] : op.zeros_meet) {
      cuts.clear();
      for (const IntExpr& condition : conditions) cuts.push_back(condition.str());
      need(op, ring, cuts);
    }
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
