// Rewriting of tile trees.
#include "codegen/tile/analysis/tile_rewrite.h"

namespace nestor::nvptx {

TileAccess rewrite(const TileAccess& access, const IntRewriter& rewriter) {
  TileAccess result = access;
  for (IntExpr& index : result.index) index = rewriter(index);
  return result;
}

TileOp rewrite(const TileOp& op, const IntRewriter& rewriter) {
  TileOp result = op;
  for (OpDim& dim : result.dims) {
    dim.lower = rewriter(dim.lower);
    dim.upper = rewriter(dim.upper);
  }
  if (result.guard.defined()) result.guard = rewriter(result.guard);
  result.write = rewrite(op.write, rewriter);
  for (TileAccess& read : result.reads) read = rewrite(read, rewriter);
  for (IntExpr& index : result.indices) index = rewriter(index);
  for (IntExpr& dim : result.claim.instance) dim = rewriter(dim);
  for (IntExpr& dim : result.claim.started) dim = rewriter(dim);
  return result;
}

TileTree rewrite(const TileTree& tree, const IntRewriter& rewriter) {
  auto result = std::make_shared<TileNode>(*tree);
  if (tree->kind == TileNode::Kind::loop) {
    result->lower = rewriter(tree->lower);
    result->upper = rewriter(tree->upper);
  }
  if (tree->kind == TileNode::Kind::condition) result->condition = rewriter(tree->condition);
  if (tree->kind == TileNode::Kind::op) result->op = rewrite(tree->op, rewriter);
  for (TileTree& child : result->children) child = rewrite(child, rewriter);
  return result;
}

TileProgram with_fixed_sizes(const TileProgram& program) {
  const auto fix = [&](const IntExpr& expr) {
    IntExpr result = expr;
    for (const auto& [name, value] : program.fixed_sizes) result = result.substitute(name, value);
    return result;
  };
  TileProgram result = program;
  for (Buffer& buffer : result.buffers) {
    for (IntExpr& extent : buffer.extents) extent = fix(extent);
  }
  result.root = rewrite(program.root, fix);
  return result;
}

TileTree make_sequence(std::vector<TileTree> children) {
  if (children.size() == 1) return children.front();
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::sequence;
  node->children = std::move(children);
  return node;
}

TileTree make_op(TileOp op) {
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::op;
  node->op = std::move(op);
  return node;
}

TileTree make_loop(const std::string& var, const IntExpr& lower, const IntExpr& upper, TileTree body) {
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::loop;
  node->var = var;
  node->lower = lower;
  node->upper = upper;
  node->children = {std::move(body)};
  return node;
}

TileTree with_loop_over(const TileOp& op, int d) {
  const OpDim dim = op.dims[d];
  TileOp inner = op;
  inner.dims.erase(inner.dims.begin() + d);
  return make_loop(dim.var, dim.lower, dim.upper, make_op(std::move(inner)));
}

void for_each_op(const TileTree& tree, const std::function<void(const TileOp&, bool)>& visit, bool in_parallel) {
  if (tree->kind == TileNode::Kind::op) visit(tree->op, in_parallel);
  for (const TileTree& child : tree->children) for_each_op(child, visit, in_parallel || is_block_loop(*tree));
}

}  // namespace nestor::nvptx
