// Resident blocks: each takes many items of the grid in turn. What all items need is copied once, and copies of the data of items
// to come may be under way while the current one is worked on: with `slots` slots, the current item's in registers and those
// of slots - 1 items in a ring in shared memory. Trip t uses ring slot (t - 1) mod (slots - 1) for its own data, which is free
// for item t + slots - 1 as soon as trip t begins.
#include "codegen/nvptx/block_plan.h"

#include <algorithm>
#include <map>

namespace nestor::nvptx {
namespace {

constexpr const char* kItem = "$item";

BlockNode loop_node(const std::string& var, const IntExpr& lower, const IntExpr& upper, BlockNode body) {
  BlockNode node;
  node.kind = TileNode::Kind::loop;
  node.var = var;
  node.lower = lower;
  node.upper = upper;
  node.children.push_back(std::move(body));
  return node;
}

BlockNode named(const std::string& var, const IntExpr& value, BlockNode body) {
  BlockNode node = loop_node(var, value, value + IntExpr(1), std::move(body));
  node.once = true;
  return node;
}

BlockNode sequence(std::vector<BlockNode> children) {
  BlockNode node;
  node.children = std::move(children);
  return node;
}

BlockNode op_node(int op) {
  BlockNode node;
  node.kind = TileNode::Kind::op;
  node.op = op;
  return node;
}

IntExpr item_count(const KernelPlan& kernel) {
  IntExpr total(1);
  for (const GridLoop& loop : kernel.grid) total = total * loop.count;
  return total;
}

/// The body at one item of the grid: its coordinates by name.
BlockNode at_item(const KernelPlan& kernel, const IntExpr& item, BlockNode body) {
  const IntExpr number = IntExpr::variable(kItem);
  for (std::size_t k = kernel.grid.size(); k-- > 0;) {
    const GridLoop& loop = kernel.grid[k];
    IntExpr after(1);
    for (std::size_t i = k + 1; i < kernel.grid.size(); ++i) after = after * kernel.grid[i].count;
    IntExpr index = after.is_constant(1) ? number : IntExpr::make(IntOp::floor_div, {number, after});
    if (k > 0) index = IntExpr::make(IntOp::mod, {index, loop.count});
    body = named(loop.var, loop.lower + IntExpr(loop.step) * index, std::move(body));
  }
  return named(kItem, item, std::move(body));
}

bool uses_grid(const BlockPlan& plan, const TileOp& op) {
  return std::any_of(plan.kernel->grid.begin(), plan.kernel->grid.end(), [&](const GridLoop& loop) {
    const auto in = [&](const IntExpr& expr) { return expr.defined() && expr.uses(loop.var); };
    return in(op.guard) || uses_any(op.write, loop.var) ||
           std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return uses_any(read, loop.var); }) ||
           std::any_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return in(dim.lower) || in(dim.upper); });
  });
}

/// A copy of an input into a buffer that nothing else writes.
bool is_staged_input(const BlockPlan& plan, int k) {
  const TileOp& op = plan.ops[static_cast<std::size_t>(k)].op;
  if (op.kind != OpKind::copy || op.reads.size() != 1) return false;
  const Buffer &from = plan.buffer(op.reads[0].buffer), &to = plan.buffer(op.write.buffer);
  if (from.memory != Memory::argument || from.role != TensorRole::input || to.memory != Memory::scratch) return false;
  return std::count_if(plan.ops.begin(), plan.ops.end(),
                       [&](const BlockOp& other) { return other.op.write.buffer == op.write.buffer; }) == 1;
}

}  // namespace

void reside(BlockPlan& plan) {
  const KernelPlan& kernel = *plan.kernel;
  if (kernel.shape.persistent == 0 || kernel.grid.empty()) return;
  const IntExpr first = IntExpr::variable(kBlockNumber), stride = IntExpr::variable(kBlockCount), total = item_count(kernel);
  std::vector<BlockNode> before, start, ahead, body, finish;
  std::map<int, std::vector<BlockNode>> early;  ///< copies before the first trip, by the trip they are for
  int deepest = 0;
  std::vector<BlockNode> children;
  if (plan.root.kind == TileNode::Kind::sequence) {
    children = plan.root.children;
  } else {
    children.push_back(plan.root);
  }
  for (BlockNode& child : children) {
    const bool staged = child.kind == TileNode::Kind::op && is_staged_input(plan, child.op);
    const bool varies = staged && uses_grid(plan, plan.ops[static_cast<std::size_t>(child.op)].op);
    if (staged && !varies) {
      before.push_back(std::move(child));
      continue;
    }
    const int buffer = staged ? plan.ops[static_cast<std::size_t>(child.op)].op.write.buffer : -1;
    const bool raw =
        staged && plan.vector_memory &&
        plan.buffer(buffer).type == plan.buffer(plan.ops[static_cast<std::size_t>(child.op)].op.reads[0].buffer).type;
    if (!raw || plan.buffer(buffer).slots < 2) {
      body.push_back(std::move(child));
      continue;
    }
    const int distance = plan.buffer(buffer).slots - 1;
    const auto copy_ahead = [&](int trips, std::vector<BlockNode>& out) {
      BlockOp next = plan.ops[static_cast<std::size_t>(child.op)];
      next.ahead = trips;
      plan.ops.push_back(std::move(next));
      const IntExpr item = IntExpr::variable(kItem) + IntExpr(trips) * stride;
      BlockNode guarded;
      guarded.kind = TileNode::Kind::condition;
      guarded.condition = IntExpr::make(IntOp::gt, {total - item, IntExpr(0)});
      guarded.children.push_back(at_item(kernel, item, op_node(static_cast<int>(plan.ops.size()) - 1)));
      out.push_back(std::move(guarded));
    };
    for (int trips = 1; trips < distance; ++trips) copy_ahead(trips, early[trips]);
    copy_ahead(distance, ahead);
    deepest = std::max(deepest, distance);
    start.push_back(std::move(child));
    BlockNode advance;
    advance.advance = buffer;
    finish.push_back(std::move(advance));
  }
  BlockNode commit;
  commit.commit = true;
  if (!ahead.empty()) ahead.push_back(commit);
  // A copy that looks less far ahead than another one has nothing in the first groups.
  for (int trips = 1; trips < deepest; ++trips) {
    start.insert(start.end(), std::make_move_iterator(early[trips].begin()), std::make_move_iterator(early[trips].end()));
    start.push_back(commit);
  }
  body.insert(body.begin(), std::make_move_iterator(ahead.begin()), std::make_move_iterator(ahead.end()));
  body.insert(body.end(), std::make_move_iterator(finish.begin()), std::make_move_iterator(finish.end()));
  const IntExpr trips = IntExpr::make(IntOp::floor_div, {total - first + stride - IntExpr(1), stride});
  BlockNode loop =
      loop_node(kTrip, 0, trips, at_item(kernel, first + stride * IntExpr::variable(kTrip), sequence(std::move(body))));
  loop.independent = true;
  std::vector<BlockNode> all = std::move(before);
  if (!start.empty()) all.push_back(named(kTrip, 0, at_item(kernel, first, sequence(std::move(start)))));
  all.push_back(std::move(loop));
  plan.root = sequence(std::move(all));
}

}  // namespace nestor::nvptx
