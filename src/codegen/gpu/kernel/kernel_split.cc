// Cuts a tile program into kernels.
#include "codegen/gpu/kernel/kernel_split.h"

#include "codegen/gpu/kernel/distribute.h"
#include "codegen/gpu/kernel/part_sums.h"
#include "codegen/gpu/kernel/privatization.h"
#include "codegen/gpu/kernel/product_loops.h"
#include "codegen/gpu/kernel/register_promotion.h"
#include "codegen/gpu/target/block_registers.h"
#include "codegen/tile/analysis/affine.h"
#include "codegen/tile/analysis/op_shape.h"
#include "codegen/tile/analysis/tile_rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace nestor::nvptx {
namespace {

bool op_is_parallel(const TileOp& op) {
  return std::any_of(op.dims.begin(), op.dims.end(),
                     [](const OpDim& dim) { return dim.parallel && !dim.reduced && !single_valued(dim); });
}

bool has_parallelism(const TileTree& tree) {
  if (is_block_loop(*tree) || (tree->kind == TileNode::Kind::op && op_is_parallel(tree->op))) return true;
  return std::any_of(tree->children.begin(), tree->children.end(), has_parallelism);
}

/// The only thing inside a chain of single-child sequences.
const TileTree& unwrapped(const TileTree& tree) {
  const TileTree* inner = &tree;
  while ((*inner)->kind == TileNode::Kind::sequence && (*inner)->children.size() == 1) inner = &(*inner)->children[0];
  return *inner;
}

IntExpr trip_count(const TileNode& loop) {
  const IntExpr extent = loop.upper - loop.lower;
  return max(loop.step == 1 ? extent : floor_div(extent + IntExpr(loop.step - 1), loop.step), 0);
}

class Planner {
 public:
  Planner(const TileProgram& program, int threads) : threads_(threads) { plan_.program = with_fixed_sizes(program); }

  LaunchPlan run() {
    move_outer_scratch_to_workspace();
    visit(plan_.program.root, plan_.launches);
    // A launch whose first kernel waits is part of a chain: what follows it in the stream may be one that waits, too.
    if (!plan_.kernels.empty() && plan_.kernels.front().waits) plan_.kernels.back().triggers = true;
    return std::move(plan_);
  }

 private:
  /// Scratch is private to a block; what ops outside of any parallel loop use must outlive kernels.
  void move_outer_scratch_to_workspace() {
    for_each_op(plan_.program.root, [&](const TileOp& op, bool in_parallel) {
      if (in_parallel) return;
      const auto move = [&](const TileAccess& access) {
        Buffer& buffer = plan_.program.buffers[access.buffer];
        if (buffer.memory == Memory::scratch) buffer.memory = Memory::workspace;
      };
      move(op.write);
      for (const TileAccess& read : op.reads) move(read);
    });
  }

  void visit(const TileTree& tree, std::vector<LaunchNode>& out) {
    switch (tree->kind) {
      case TileNode::Kind::sequence:
        for (const TileTree& child : tree->children) visit(child, out);
        return;
      case TileNode::Kind::condition: {
        const IntExpr outer = condition_;
        condition_ = outer.defined() ? outer && tree->condition : tree->condition;
        for (const TileTree& child : tree->children) visit(child, out);
        condition_ = outer;
        return;
      }
      case TileNode::Kind::loop:
        if (is_block_loop(*tree)) return visit_blocks(tree, out);
        if (has_parallelism(tree)) return visit_launch_loop(tree, out);
        return add_kernel({}, tree, out);
      case TileNode::Kind::op:
        return visit_op(tree->op, out);
    }
  }

  void visit_launch_loop(const TileTree& tree, std::vector<LaunchNode>& out) {
    LaunchNode loop;
    loop.kind = LaunchNode::Kind::loop;
    loop.var = tree->var;
    loop.lower = tree->step == 1 ? tree->lower : IntExpr(0);
    loop.upper = tree->step == 1 ? tree->upper : trip_count(*tree);
    const IntExpr outer = condition_;
    TileTree body = make_sequence(tree->children);
    if (tree->step != 1) {
      loop.var = tree->var + "_trip";
      const IntExpr value = tree->lower + IntExpr(tree->step) * IntExpr::variable(loop.var);
      body = rewrite(body, [&](const IntExpr& expr) { return expr.substitute(tree->var, value); });
    }
    loops_.push_back({loop.var, loop.lower, loop.upper});
    visit(body, loop.children);
    loops_.pop_back();
    condition_ = outer;
    if (!loop.children.empty()) out.push_back(std::move(loop));
  }

  void visit_blocks(const TileTree& tree, std::vector<LaunchNode>& out) {
    std::vector<GridLoop> grid;
    std::set<std::string> vars;
    TileTree inner = tree;
    bool unit_steps = true;
    GridShape shape;
    while (is_block_loop(*inner)) {
      std::set<std::string> bounds;
      collect_variables(inner->lower, bounds);
      collect_variables(inner->upper, bounds);
      const bool depends = std::any_of(bounds.begin(), bounds.end(), [&](const auto& name) { return vars.count(name) != 0; });
      if (depends) break;  // not a rectangle: the rest runs inside the block
      grid.push_back({inner->var, inner->lower, trip_count(*inner), inner->step});
      vars.insert(inner->var);
      unit_steps = unit_steps && inner->step == 1;
      if (!inner->knobs.empty()) shape = grid_shape(inner->knobs);
      inner = unwrapped(make_sequence(inner->children));
    }
    if (inner->kind == TileNode::Kind::op && unit_steps && is_thin(inner->op)) return visit_op(absorb(tree, inner), out);
    add_kernel(std::move(grid), inner, out, shape);
  }

  /// Too few points for a block of its own, and nothing private to the block. What runs in order before parallel dims is a loop around these.
  bool is_thin(TileOp op) const {
    const auto in_scratch = [&](const TileAccess& access) {
      return plan_.program.buffers[access.buffer].memory == Memory::scratch;
    };
    if (in_scratch(op.write) || std::any_of(op.reads.begin(), op.reads.end(), in_scratch)) return false;
    std::int64_t points = 1;
    op.dims.erase(op.dims.begin(), op.dims.begin() + leading_serial_dims(op));
    const auto spread = spreadable_dims(op);
    for (std::size_t d = 0; d < op.dims.size(); ++d) {
      if (!spread[d]) continue;
      const auto extent = extent_bound(op.dims[d]);
      if (!extent) return false;
      points *= std::max<std::int64_t>(*extent, 1);
      if (points >= 32) return false;
    }
    return true;
  }

  /// The op with the parallel loops around it as its outermost dims.
  static TileOp absorb(const TileTree& tree, const TileTree& op_node) {
    TileOp op = op_node->op;
    std::vector<OpDim> dims;
    for (TileTree loop = tree; loop != op_node; loop = unwrapped(make_sequence(loop->children))) {
      OpDim dim;
      dim.var = loop->var;
      dim.lower = loop->lower;
      dim.upper = loop->upper;
      dim.parallel = true;
      dims.push_back(std::move(dim));
    }
    op.dims.insert(op.dims.begin(), dims.begin(), dims.end());
    return op;
  }

  void visit_op(const TileOp& op, std::vector<LaunchNode>& out) {
    if (!op_is_parallel(op)) return add_kernel({}, make_op(op), out);
    if (const int serial = leading_serial_dims(op); serial > 0) {
      TileOp inner = op;
      inner.dims.erase(inner.dims.begin(), inner.dims.begin() + serial);
      TileTree tree = make_op(inner);
      for (int d = serial - 1; d >= 0; --d) tree = make_loop(op.dims[d].var, op.dims[d].lower, op.dims[d].upper, tree);
      return visit_launch_loop(tree, out);
    }
    Distribution distribution = distribute(op, plan_.program, threads_);
    add_kernel(std::move(distribution.grid), make_op(std::move(distribution.op)), out);
  }

  void add_kernel(std::vector<GridLoop> grid, const TileTree& body, std::vector<LaunchNode>& out, const GridShape& shape = {}) {
    KernelPlan kernel;
    kernel.symbol = fmt::format("{}_{}", plan_.program.name, plan_.kernels.size());
    IntExpr blocks(1);
    for (const GridLoop& loop : grid) blocks = blocks * loop.count;
    if (shape.persistent > 0) {
      const IntExpr resident = floor_div(IntExpr(shape.persistent) * IntExpr::variable(kUnits), shape.cluster);
      blocks = min(blocks, shape.cluster > shape.persistent ? max(resident, IntExpr(1)) : resident);
    }
    if (condition_.defined()) blocks = IntExpr::make(IntOp::select, {condition_, blocks, IntExpr(0)});
    if (shape.cluster > 1) blocks = blocks * IntExpr(shape.cluster);
    kernel.shape = shape;
    kernel.grid = std::move(grid);
    kernel.launch_loops = loops_;
    kernel.condition = condition_;
    const int threads = shape.threads > 0 ? shape.threads : threads_;
    kernel.body = promote_to_registers(body, plan_.program.buffers, register_room(threads, shape.cluster));
    if (shape.warpgroups > 0) kernel.body = on_tensor_cores(kernel.body);
    kernel.waits = shape.programmatic_launch != 0;
    if (kernel.waits && !plan_.kernels.empty()) plan_.kernels.back().triggers = true;
    LaunchNode node;
    node.symbol = kernel.symbol;
    node.programmatic = kernel.waits;
    node.grid[0] = blocks;
    node.cluster[0] = shape.cluster;
    out.push_back(std::move(node));
    plan_.kernels.push_back(std::move(kernel));
  }

  /// What tensor plans are made of.
  TileTree on_tensor_cores(const TileTree& body) {
    const TileTree products = with_single_products(privatized(body, plan_.program), plan_.program);
    return with_elementwise_sums(with_merged_loops(with_conditions_inside(with_product_loops(products))), plan_.program.buffers);
  }

  int threads_;
  LaunchPlan plan_;
  IntExpr condition_;  ///< of the tile tree around the current node, over sizes and launch loops
  std::vector<LaunchLoop> loops_;
};

}  // namespace

LaunchPlan plan_launches(const TileProgram& program, int threads) { return Planner(program, threads).run(); }

}  // namespace nestor::nvptx
