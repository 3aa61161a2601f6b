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

void drop_if_true(TileNode& node) {
  if (!node.condition.is_constant(1)) return;
  node.kind = TileNode::Kind::sequence;
  node.condition = {};
}

TileTree rewrite(const TileTree& tree, const IntRewriter& rewriter) {
  auto result = std::make_shared<TileNode>(*tree);
  if (tree->kind == TileNode::Kind::loop) {
    result->lower = rewriter(tree->lower);
    result->upper = rewriter(tree->upper);
  }
  if (tree->kind == TileNode::Kind::condition) {
    result->condition = rewriter(tree->condition);
    drop_if_true(*result);
  }
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

namespace {

IntExpr both(const IntExpr& a, const IntExpr& b) { return a.defined() && b.defined() ? a && b : a.defined() ? a : b; }

TileTree on(const IntExpr& condition, std::vector<TileTree> children) {
  auto node = std::make_shared<TileNode>();
  node->kind = TileNode::Kind::condition;
  node->condition = condition;
  node->children = std::move(children);
  return node;
}

/// The tree where `condition` holds; undefined: everywhere.
TileTree where(const IntExpr& condition, const TileTree& tree) {
  auto node = std::make_shared<TileNode>(*tree);
  switch (tree->kind) {
    case TileNode::Kind::op:
      if (tree->op.fill && condition.defined()) break;  // where its guard fails it writes
      node->op.guard = both(condition, tree->op.guard);
      return node;
    case TileNode::Kind::condition:
      for (TileTree& child : node->children) child = where(both(condition, tree->condition), child);
      return make_sequence(node->children);
    case TileNode::Kind::sequence:
      for (TileTree& child : node->children) child = where(condition, child);
      return node;
    case TileNode::Kind::loop:
      break;
  }
  if (tree->kind == TileNode::Kind::op) return on(condition, {tree});
  IntExpr tested = condition;
  if (tree->children.size() == 1 && tree->children[0]->kind == TileNode::Kind::condition) {
    tested = both(tested, tree->children[0]->condition);
    node->children = tree->children[0]->children;
  }
  for (TileTree& child : node->children) child = where({}, child);
  if (tested.defined()) node->children = {on(tested, std::move(node->children))};
  return node;
}

}  // namespace

TileTree with_conditions_inside(const TileTree& tree) { return where({}, tree); }

void for_each_op(const TileTree& tree, const std::function<void(const TileOp&, bool)>& visit, bool in_parallel) {
  if (tree->kind == TileNode::Kind::op) visit(tree->op, in_parallel);
  for (const TileTree& child : tree->children) for_each_op(child, visit, in_parallel || is_block_loop(*tree));
}

}  // namespace nestor::nvptx
