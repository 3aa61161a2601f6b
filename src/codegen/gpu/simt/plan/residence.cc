// Trips: resident blocks, each of which takes many work tiles of the grid in turn, and loops within a block. What all trips need is
// copied once, and copies of the data of trips to come may be under way while the current one is worked on: with `stages`,
// the current trip's data lies in registers and that of stages - 1 trips in a circular buffer in shared memory. Trip t uses its place
// (t - 1) mod (stages - 1), which is free for trip t + stages - 1 as soon as trip t begins.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

namespace nestor::nvptx {
namespace {

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

IntExpr work_tile_count(const KernelPlan& kernel) {
  IntExpr total(1);
  for (const GridLoop& loop : kernel.grid) total = total * loop.count;
  return total;
}

/// The body at one work tile of the grid: its coordinates by name.
BlockNode at_work_tile(const KernelPlan& kernel, const IntExpr& work_tile, BlockNode body) {
  const IntExpr number = IntExpr::variable(kWorkTile);
  for (std::size_t k = kernel.grid.size(); k-- > 0;) {
    const GridLoop& loop = kernel.grid[k];
    IntExpr after(1);
    for (std::size_t i = k + 1; i < kernel.grid.size(); ++i) after = after * kernel.grid[i].count;
    IntExpr index = after.is_constant(1) ? number : IntExpr::make(IntOp::floor_div, {number, after});
    if (k > 0) index = IntExpr::make(IntOp::mod, {index, loop.count});
    body = named(loop.var, loop.lower + IntExpr(loop.step) * index, std::move(body));
  }
  return named(kWorkTile, work_tile, std::move(body));
}

/// The trips of a loop as copies ahead need them.
struct Trips {
  IntExpr count;
  bool never_empty = false;
  std::set<std::string> coordinates;                                 ///< variables that differ from trip to trip
  std::function<BlockNode(const IntExpr& trip, BlockNode body)> at;  ///< the body with the coordinates of a trip
};

bool varies(const TileOp& op, const Trips& trips) {
  return std::any_of(trips.coordinates.begin(), trips.coordinates.end(), [&](const std::string& name) {
    const auto in = [&](const IntExpr& expr) { return expr.defined() && expr.uses(name); };
    return in(op.guard) || uses_any(op.write, name) ||
           std::any_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return uses_any(read, name); }) ||
           std::any_of(op.dims.begin(), op.dims.end(), [&](const OpDim& dim) { return in(dim.lower) || in(dim.upper); });
  });
}

/// A copy of an input into a buffer that nothing else writes.
bool is_staged_input(const BlockPlan& plan, int k) {
  const TileOp& op = plan.ops[k].op;
  if (op.kind != OpKind::copy || op.reads.size() != 1) return false;
  const Buffer &from = plan.buffer(op.reads[0].buffer), &to = plan.buffer(op.write.buffer);
  if (from.memory != Memory::argument || from.role != TensorRole::input || to.memory != Memory::scratch) return false;
  return std::count_if(plan.ops.begin(), plan.ops.end(),
                       [&](const BlockOp& other) { return other.op.write.buffer == op.write.buffer; }) == 1;
}

/// A copy that differs from trip to trip, of whole pieces, and that the schedule wants ahead of its trip.
bool runs_ahead(const BlockPlan& plan, const BlockNode& node, const Trips& trips) {
  if (node.kind != TileNode::Kind::op || !plan.vector_memory || !is_staged_input(plan, node.op)) return false;
  const TileOp& op = plan.ops[node.op].op;
  const Buffer& buffer = plan.buffer(op.write.buffer);
  const bool in_words = buffer.type != ElementType::boolean && buffer.type != ElementType::i64;
  return buffer.stages >= 2 && in_words && buffer.type == plan.buffer(op.reads[0].buffer).type && varies(op, trips);
}

/// The nodes of a sequence, in order, those of sequences within it among them.
void flatten(const BlockNode& node, std::vector<BlockNode>& out) {
  if (node.kind != TileNode::Kind::sequence) return out.push_back(node);
  for (const BlockNode& child : node.children) flatten(child, out);
}

std::vector<BlockNode> body_of(const BlockNode& node) {
  std::vector<BlockNode> body;
  for (const BlockNode& child : node.children) flatten(child, body);
  return body;
}

/// A loop over trips: what belongs before it, and what one trip does.
class Pipeline {
 public:
  Pipeline(BlockPlan& plan, const Trips& trips) : plan_(plan), trips_(trips) {}

  BlockNode run(std::vector<BlockNode> children, bool independent) {
    for (BlockNode& child : children) sort(std::move(child));
    BlockNode commit;
    commit.commit = true;
    if (!ahead_.empty()) ahead_.push_back(commit);
    // A copy that looks less far ahead than another one has nothing in the first groups.
    for (int trips = 1; trips < deepest_; ++trips) {
      move(early_[trips], start_);
      start_.push_back(commit);
    }
    std::vector<BlockNode> trip = std::move(ahead_);
    move(body_, trip);
    move(finish_, trip);
    BlockNode loop = loop_node(kTrip, 0, trips_.count, trips_.at(IntExpr::variable(kTrip), sequence(std::move(trip))));
    loop.independent = independent;
    std::vector<BlockNode> all = std::move(before_);
    if (!start_.empty()) {
      BlockNode start = named(kTrip, 0, trips_.at(IntExpr::variable(kTrip), sequence(std::move(start_))));
      all.push_back(trips_.never_empty ? std::move(start) : when_trip(0, std::move(start)));
    }
    all.push_back(std::move(loop));
    return sequence(std::move(all));
  }

 private:
  static void move(std::vector<BlockNode>& from, std::vector<BlockNode>& to) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  void sort(BlockNode child) {
    const bool staged = child.kind == TileNode::Kind::op && is_staged_input(plan_, child.op);
    if (staged && !varies(plan_.ops[child.op].op, trips_)) {
      plan_.lasting.insert(plan_.ops[child.op].op.write.buffer);
      before_.push_back(std::move(child));
    } else if (runs_ahead(plan_, child, trips_)) {
      copy_ahead(std::move(child));
    } else {
      body_.push_back(std::move(child));
    }
  }

  void copy_ahead(BlockNode child) {
    const int buffer = plan_.ops[child.op].op.write.buffer, distance = plan_.buffer(buffer).stages - 1;
    for (int trips = 1; trips < distance; ++trips) early_[trips].push_back(copy_for(child.op, trips));
    ahead_.push_back(copy_for(child.op, distance));
    deepest_ = std::max(deepest_, distance);
    start_.push_back(std::move(child));
    BlockNode advance;
    advance.advance = buffer;
    finish_.push_back(std::move(advance));
  }

  /// The copy for the trip so many trips later, if there is one.
  BlockNode copy_for(int op, int trips) {
    BlockOp next = plan_.ops[op];
    next.ahead = trips;
    plan_.ops.push_back(std::move(next));
    const IntExpr trip = IntExpr::variable(kTrip) + IntExpr(trips);
    return when_trip(trip, trips_.at(trip, op_node(static_cast<int>(plan_.ops.size()) - 1)));
  }

  BlockNode when_trip(const IntExpr& trip, BlockNode body) const {
    BlockNode guarded;
    guarded.kind = TileNode::Kind::condition;
    guarded.condition = IntExpr::make(IntOp::gt, {trips_.count - trip, IntExpr(0)});
    guarded.children.push_back(std::move(body));
    return guarded;
  }

  BlockPlan& plan_;
  const Trips& trips_;
  std::vector<BlockNode> before_, start_, ahead_, body_, finish_;
  std::map<int, std::vector<BlockNode>> early_;  ///< copies before the first trip, by the trip they are for
  int deepest_ = 0;
};

/// Loops of a block whose copies are to run ahead; a loop inside of another such loop stays as it is.
void run_loops_ahead(BlockPlan& plan, BlockNode& node) {
  if (node.kind == TileNode::Kind::loop && !node.once) {
    Trips trips;
    trips.count = node.upper - node.lower;
    if (node.step != 1) trips.count = floor_div(trips.count + IntExpr(node.step - 1), node.step);
    trips.coordinates = {node.var};
    trips.at = [var = node.var, lower = node.lower, step = node.step](const IntExpr& trip, BlockNode body) {
      return named(var, lower + IntExpr(step) * trip, std::move(body));
    };
    std::vector<BlockNode> body = body_of(node);
    if (std::any_of(body.begin(), body.end(), [&](const BlockNode& child) { return runs_ahead(plan, child, trips); })) {
      node = Pipeline(plan, trips).run(std::move(body), false);
      return;
    }
  }
  for (BlockNode& child : node.children) run_loops_ahead(plan, child);
}

}  // namespace

void reside(BlockPlan& plan) {
  const KernelPlan& kernel = *plan.kernel;
  if (kernel.shape.persistent == 0 || kernel.grid.empty()) return run_loops_ahead(plan, plan.root);
  const IntExpr first = IntExpr::variable(kBlockNumber), stride = IntExpr::variable(kBlockCount), total = work_tile_count(kernel);
  Trips trips;
  trips.count = IntExpr::make(IntOp::floor_div, {total - first + stride - IntExpr(1), stride});
  trips.never_empty = true;  // there are no more blocks than work tiles
  for (const GridLoop& loop : kernel.grid) trips.coordinates.insert(loop.var);
  trips.at = [&](const IntExpr& trip, BlockNode body) { return at_work_tile(kernel, first + stride * trip, std::move(body)); };
  plan.root = Pipeline(plan, trips).run(body_of(sequence({plan.root})), true);
}

}  // namespace nestor::nvptx
