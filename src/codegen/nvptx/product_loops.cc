#include "codegen/nvptx/product_loops.h"

#include "codegen/nvptx/op_shape.h"
#include "codegen/nvptx/tile_rewrite.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

TileTree with_loops(const TileTree& leaf, const std::vector<Buffer>& buffers) {
  const TileOp& op = leaf->op;
  const auto outer = product_outer_dims(op, buffers);
  const auto reduced = [&](int d) { return op.dims[static_cast<std::size_t>(d)].reduced; };
  if (!outer || outer->empty() || !std::all_of(outer->begin(), outer->end(), reduced)) return leaf;
  TileOp inner = op;
  for (auto d = outer->rbegin(); d != outer->rend(); ++d) inner.dims.erase(inner.dims.begin() + *d);
  TileTree tree = make_op(std::move(inner));
  for (auto d = outer->rbegin(); d != outer->rend(); ++d) {
    const OpDim& dim = op.dims[static_cast<std::size_t>(*d)];
    tree = make_loop(dim.var, dim.lower, dim.upper, tree);
  }
  return tree;
}

}  // namespace

TileTree with_product_loops(const TileTree& tree, const std::vector<Buffer>& buffers) {
  if (tree->kind == TileNode::Kind::op) return with_loops(tree, buffers);
  TileNode node = *tree;
  for (TileTree& child : node.children) child = with_product_loops(child, buffers);
  return std::make_shared<const TileNode>(std::move(node));
}

}  // namespace nestor::nvptx
