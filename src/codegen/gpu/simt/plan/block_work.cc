// Trips, extents and threads at given sizes.
#include "codegen/gpu/simt/plan/block_work.h"

#include "support/error.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// Walks a block's tree with every loop in the middle of its range.
class Work {
 public:
  Work(const BlockPlan& plan, const std::map<std::string, std::int64_t>& sizes, int units)
      : plan_(plan), values_(sizes), units_(units) {
    for (const auto& [name, value] : plan.program->fixed_sizes) values_.emplace(name, value);
    for (const LaunchLoop& loop : plan.kernel->launch_loops) launches_ *= enter(loop.var, loop.lower, loop.upper, 1);
    for (const GridLoop& loop : plan.kernel->grid) {
      blocks_ *= enter(loop.var, loop.lower, loop.lower + loop.count * IntExpr(loop.step), loop.step);
    }
    if (const std::int64_t resident = plan.kernel->shape.persistent; resident > 0) {
      blocks_ = std::min(blocks_, std::max<std::int64_t>(resident * units / plan.cluster, 1));
      values_[kBlockNumber] = 0;
      values_[kBlockCount] = blocks_;
    }
  }

  double clocks() {
    visit(plan_.root, 1);
    return clocks_ * static_cast<double>(launches_);
  }

 private:
  std::int64_t value(const IntExpr& expr) const {
    return expr.evaluate([&](const std::string& name) {
      const auto found = values_.find(name);
      if (found == values_.end()) user_error("The value of '{}' is not known.", name);
      return found->second;
    });
  }

  /// The number of trips; the loop's variable has the value of the middle one.
  std::int64_t enter(const std::string& var, const IntExpr& lower, const IntExpr& upper, std::int64_t step) {
    const std::int64_t first = value(lower), trips = std::max<std::int64_t>((value(upper) - first + step - 1) / step, 0);
    values_[var] = first + trips / 2 * step;
    return trips;
  }

  void visit(const BlockNode& node, std::int64_t trips) {
    if (node.kind == TileNode::Kind::op) return add(plan_.ops[static_cast<std::size_t>(node.op)], trips);
    if (node.kind == TileNode::Kind::loop) trips *= enter(node.var, node.lower, node.upper, node.step);
    for (const BlockNode& child : node.children) visit(child, trips);
  }

  bool touches_memory(const BlockOp& op) const {
    const auto global = [&](const TileAccess& access) { return plan_.buffer(access.buffer).memory != Memory::scratch; };
    return global(op.op.write) || std::any_of(op.op.reads.begin(), op.op.reads.end(), global);
  }

  void add(const BlockOp& op, std::int64_t trips) {
    if (op.product || !touches_memory(op)) return;
    std::vector<std::int64_t> extents;
    double elements = static_cast<double>(trips) * static_cast<double>(blocks_);
    for (const OpDim& dim : op.op.dims) {
      extents.push_back(std::max<std::int64_t>(value(dim.upper) - value(dim.lower), 0));
      values_[dim.var] = value(dim.lower) + extents.back() / 2;
      const auto is_dim = [&](const std::optional<ChosenTerm>& term) {
        return term && &dim == &op.op.dims[static_cast<std::size_t>(term->dim)];
      };
      elements *= static_cast<double>(is_dim(op.chosen) ? std::min<std::int64_t>(extents.back(), 1) : extents.back());
      // A warp looks at its lanes' number of terms at once.
      if (is_dim(op.scattered) && extents.back() > 0)
        elements *= static_cast<double>(op.threads_along(op.scattered->dim)) / static_cast<double>(kWarpThreads * extents.back());
    }
    if (elements == 0) return;
    const std::int64_t room = std::max<std::int64_t>(units_ * kUnitThreads / plan_.all_threads(), 1);
    const std::int64_t threads = std::min(blocks_, room) * working_threads(op, extents);
    clocks_ += kElementClocks * elements / (op.vectors ? op.layout.vector : 1) / static_cast<double>(threads);
  }

  const BlockPlan& plan_;
  std::map<std::string, std::int64_t> values_;
  std::int64_t units_, blocks_ = 1, launches_ = 1;
  double clocks_ = 0;
};

}  // namespace

std::int64_t working_threads(const BlockOp& op, const std::vector<std::int64_t>& extents) {
  const auto extent = [&](int dim) { return extents[static_cast<std::size_t>(dim)]; };
  std::int64_t rows = op.divides() ? extent(op.divided) : 1;
  for (const int dim : op.rows) rows *= extent(dim);
  const std::int64_t columns = op.column < 0 ? 1 : extent(op.column);
  return std::max<std::int64_t>(std::min<std::int64_t>(op.layout.lanes, ceil_div(columns, op.layout.vector)) *
                                    std::min<std::int64_t>(op.layout.groups, rows),
                                1);
}

double least_clocks(const BlockPlan& plan, const std::map<std::string, std::int64_t>& sizes, int units) {
  try {
    return Work(plan, sizes, units).clocks();
  } catch (const UserError&) {
    return 0;  // an extent that hangs on data, or a count beyond 64 bits
  }
}

}  // namespace nestor::nvptx
