// Joined passes: reductions along the columns of the same rows, which read the same memory, add up their terms in one pass over it. Each
// combines its threads' results by itself, as without.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace nestor::nvptx {
namespace {

bool equal_text(const IntExpr& a, const IntExpr& b) { return a.str() == b.str(); }

bool is_input(const BlockPlan& plan, const TileAccess& access) {
  const Buffer& buffer = plan.buffer(access.buffer);
  return buffer.memory == Memory::argument && buffer.role == TensorRole::input;
}

/// A reduction that a pass over columns in memory serves, with results that one warp has, or one row of the block.
bool passes_over_memory(const BlockPlan& plan, const BlockOp& op) {
  if (!op.reduces_columns() || op.op.kind == OpKind::points || op.fused || op.deferred || op.warp_lead >= 0) return false;
  if (plan.cluster > 1 || op.ahead > 0 || op.unroll_columns || (op.crosses_warps() && !op.rows.empty())) return false;
  return std::all_of(op.op.reads.begin(), op.op.reads.end(),
                     [&](const TileAccess& read) { return is_input(plan, read) || plan.in_registers(read); });
}

/// The same threads at the same points.
bool same_points(const BlockOp& a, const BlockOp& b) {
  if (!(a.layout == b.layout)) return false;
  if (a.vectors != b.vectors || a.unroll_rows != b.unroll_rows || a.column != b.column || a.divided != b.divided ||
      a.rows != b.rows || a.roles != b.roles)
    return false;
  if (a.op.dims.size() != b.op.dims.size()) return false;
  const TileOp other = with_dims_of(a.op, b.op);
  for (std::size_t d = 0; d < a.op.dims.size(); ++d) {
    const OpDim &x = a.op.dims[d], &y = other.dims[d];
    if (x.reduced != y.reduced || !equal_text(x.lower, y.lower) || !equal_text(x.upper, y.upper)) return false;
  }
  return true;
}

/// Does the pass read something that both want?
bool share_memory(const BlockPlan& plan, const BlockOp& a, const BlockOp& b) {
  const TileOp other = with_dims_of(a.op, b.op);
  return std::any_of(a.op.reads.begin(), a.op.reads.end(), [&](const TileAccess& x) {
    return is_input(plan, x) && std::any_of(other.reads.begin(), other.reads.end(), [&](const TileAccess& y) {
             return x.buffer == y.buffer &&
                    std::equal(x.index.begin(), x.index.end(), y.index.begin(), y.index.end(), equal_text);
           });
  });
}

class PassJoiner {
 public:
  explicit PassJoiner(BlockPlan& plan) : plan_(plan) {}

  void visit(BlockNode& node) {
    for (BlockNode& child : node.children) visit(child);
    if (node.kind != TileNode::Kind::sequence) return;
    for (std::size_t k = 0; k < node.children.size(); ++k) k += join(node.children, k);
  }

 private:
  static bool is_op(const BlockNode& node) { return node.kind == TileNode::Kind::op && node.op >= 0; }

  /// Moves what can go along with child `first` behind it. Returns how many those are.
  std::size_t join(std::vector<BlockNode>& children, std::size_t first) {
    if (!is_op(children[first])) return 0;
    const int lead = children[first].op;
    const BlockOp& op = plan_.ops[lead];
    if (op.joins >= 0 || !passes_over_memory(plan_, op)) return 0;
    std::size_t joined = 0;
    for (std::size_t k = first + 1; k < children.size() && is_op(children[k]); ++k) {
      BlockOp& other = plan_.ops[children[k].op];
      const bool free =
          std::all_of(children.begin() + static_cast<std::ptrdiff_t>(first), children.begin() + static_cast<std::ptrdiff_t>(k),
                      [&](const BlockNode& before) { return are_independent(plan_.ops[before.op], other); });
      if (!free || !passes_over_memory(plan_, other) || !same_points(op, other) || !share_memory(plan_, op, other)) continue;
      ++joined;
      other.joins = lead;
      std::rotate(children.begin() + static_cast<std::ptrdiff_t>(first + joined),
                  children.begin() + static_cast<std::ptrdiff_t>(k), children.begin() + static_cast<std::ptrdiff_t>(k) + 1);
    }
    return joined;
  }

  BlockPlan& plan_;
};

}  // namespace

void join_passes(BlockPlan& plan) { PassJoiner(plan).visit(plan.root); }

}  // namespace nestor::nvptx
