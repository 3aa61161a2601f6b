// Loops over all reduced dims of a sum of products but the innermost, one at a time.
#include "codegen/gpu/kernel/product_loops.h"

#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/analysis/tile_rewrite.h"

#include <algorithm>

namespace nestor::nvptx {

TileTree with_product_loops(const TileTree& tree, const std::vector<Buffer>& buffers) {
  if (tree->kind == TileNode::Kind::op) {
    const TileOp& op = tree->op;
    const auto outer = product_outer_dims(op, buffers);
    const auto reduced = [&](int d) { return op.dims[d].reduced; };
    if (!outer || outer->empty() || !std::all_of(outer->begin(), outer->end(), reduced)) return tree;
    return with_product_loops(with_loop_over(op, outer->front()), buffers);
  }
  TileNode node = *tree;
  for (TileTree& child : node.children) child = with_product_loops(child, buffers);
  return std::make_shared<const TileNode>(std::move(node));
}

}  // namespace nestor::nvptx
