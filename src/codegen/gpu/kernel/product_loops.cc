// Loops over all reduced dims of a sum of products but the innermost, one at a time.
#include "codegen/gpu/kernel/product_loops.h"

#include "codegen/tile/analysis/conditions.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/analysis/tile_rewrite.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace nestor::nvptx {
namespace {

/// The larger of the constants among terms of a maximum, or the smaller of a minimum; the others go to `rest`.
std::optional<std::int64_t> constant_of(const IntExpr& bound, IntOp op, std::vector<IntExpr>& rest) {
  std::vector<IntExpr> terms;
  split_terms(bound, op, terms);
  std::optional<std::int64_t> constant;
  for (const IntExpr& term : terms) {
    const auto value = term.as_constant();
    if (!value) {
      rest.push_back(term);
    } else {
      constant = !constant ? *value : op == IntOp::max ? std::max(*constant, *value) : std::min(*constant, *value);
    }
  }
  return constant;
}

/// The sum with constant bounds of its reduced dims but the innermost, as far as they have some; what else bounds them is in its guard. A
/// single one that follows no other dim stays as it is: its loop needs no number of iterations.
TileOp with_constant_bounds(TileOp op) {
  const auto last = std::find_if(op.dims.rbegin(), op.dims.rend(), [](const OpDim& dim) { return dim.reduced; });
  const auto reduced = std::count_if(op.dims.begin(), op.dims.end(), [](const OpDim& dim) { return dim.reduced; });
  for (OpDim& dim : op.dims) {
    if (!dim.reduced || &dim == &*last || (reduced <= 2 && !bounds_use_other_dims(op, dim))) continue;
    std::vector<IntExpr> lowers, uppers;
    const auto first = constant_of(dim.lower, IntOp::max, lowers), end = constant_of(dim.upper, IntOp::min, uppers);
    if (!first || !end || (lowers.empty() && uppers.empty())) continue;
    const IntExpr var = IntExpr::variable(dim.var);
    const auto require = [&](const IntExpr& condition) { op.guard = op.guard.defined() ? condition && op.guard : condition; };
    for (const IntExpr& lower : lowers) require(IntExpr::make(IntOp::ge, {var, lower}));
    for (const IntExpr& upper : uppers) require(IntExpr::make(IntOp::ge, {upper - IntExpr(1), var}));
    dim.lower = IntExpr(*first);
    dim.upper = IntExpr(*end);
  }
  return op;
}

}  // namespace

TileTree with_product_loops(const TileTree& tree) {
  if (tree->kind == TileNode::Kind::op) {
    const TileOp op = tree->op.kind == OpKind::contract ? with_constant_bounds(tree->op) : tree->op;
    const auto outer = product_outer_dims(op);
    if (!outer) return tree;
    const auto first = std::find_if(outer->begin(), outer->end(), [&](int d) { return op.dims[d].reduced; });
    const auto others = std::count_if(outer->begin(), outer->end(), [&](int d) { return !op.dims[d].reduced; });
    if (first == outer->end() || others > 1) return tree;  // rows along two loops may be packed
    return with_product_loops(with_loop_over(op, *first));
  }
  TileNode node = *tree;
  for (TileTree& child : node.children) child = with_product_loops(child);
  return std::make_shared<const TileNode>(std::move(node));
}

namespace {

bool is_plain_loop(const TileNode& node) { return node.kind == TileNode::Kind::loop && !is_block_loop(node) && node.step == 1; }

TileTree merged(const TileNode& outer, const TileNode& inner, std::int64_t first, std::int64_t count) {
  const std::string var = outer.var + "_" + inner.var;
  const IntExpr both = IntExpr::variable(var);
  auto node = std::make_shared<TileNode>(inner);
  node->var = var;
  if (node->merged.empty()) node->merged = {inner.var};
  node->merged.insert(node->merged.begin(), outer.var);
  node->lower = outer.lower * IntExpr(count);
  node->upper = outer.upper * IntExpr(count);
  for (TileTree& child : node->children) {
    child = rewrite(child, [&](const IntExpr& expr) {
      return expr.substitute(outer.var, floor_div(both, count)).substitute(inner.var, mod(both, count) + IntExpr(first));
    });
  }
  return node;
}

/// Does it add up along loops around it alone, so that each of its points has an element of its own in a tile?
bool accumulates_elements(const TileOp& op, const std::vector<Buffer>& buffers) {
  const bool scratch = buffers[static_cast<std::size_t>(op.write.buffer)].memory == Memory::scratch;
  const auto own_index = [&](const OpDim& dim) {
    return single_valued(dim) || std::any_of(op.write.index.begin(), op.write.index.end(), [&](const IntExpr& index) {
             return index.op() == IntOp::variable && index.name() == dim.var;
           });
  };
  return op.kind == OpKind::reduce && op.reduction && !op.initialize && scratch &&
         std::all_of(op.dims.begin(), op.dims.end(), own_index);
}

}  // namespace

TileTree with_elementwise_sums(const TileTree& tree, const std::vector<Buffer>& buffers) {
  TileNode node = *tree;
  for (TileTree& child : node.children) child = with_elementwise_sums(child, buffers);
  if (node.kind == TileNode::Kind::op && accumulates_elements(node.op, buffers)) {
    TileOp& op = node.op;
    const ElementType type = buffers[static_cast<std::size_t>(op.write.buffer)].type;
    const ScalarExpr before = ScalarExpr::read(static_cast<int>(op.reads.size()), type);
    op.reads.push_back(op.write);
    op.value = ScalarExpr::make(combiner(*op.reduction), {before, op.value});
    op.reduction.reset();
    op.kind = OpKind::map;
  }
  return std::make_shared<const TileNode>(std::move(node));
}

TileTree with_merged_loops(const TileTree& tree) {
  TileNode node = *tree;
  for (TileTree& child : node.children) child = with_merged_loops(child);
  if (is_plain_loop(node) && node.children.size() == 1 && is_plain_loop(*node.children[0])) {
    const TileNode& inner = *node.children[0];
    const auto first = inner.lower.as_constant(), end = inner.upper.as_constant();
    if (first && end && *first < *end) return merged(node, inner, *first, *end - *first);
  }
  return std::make_shared<const TileNode>(std::move(node));
}

}  // namespace nestor::nvptx
