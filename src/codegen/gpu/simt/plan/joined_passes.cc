// Joined passes: reductions along the columns of the same rows, which read the same memory, add up their terms in one pass over it. Each
// combines its threads' results by itself, as without. Elementwise ops over the same points, which read the same elements, have one pass as well.
#include "codegen/gpu/simt/plan/block_plan.h"

#include <algorithm>
#include <functional>
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

bool uses_one_of(const TileAccess& access, const std::set<std::string>& vars) {
  return std::any_of(access.index.begin(), access.index.end(), [&](const IntExpr& index) {
    return std::any_of(vars.begin(), vars.end(), [&](const std::string& var) { return index.uses(var); });
  });
}

/// A reduction that a pass over columns in memory serves, with results that one warp has, or one row of the block.
bool passes_over_memory(const BlockPlan& plan, const BlockOp& op) {
  if (!op.reduces_columns() || op.op.kind == OpKind::points || op.fused || op.deferred || op.warp_lead >= 0) return false;
  if (plan.cluster > 1 || op.ahead > 0 || op.unroll_columns || (op.crosses_warps() && !op.rows.empty())) return false;
  return std::all_of(op.op.reads.begin(), op.op.reads.end(),
                     [&](const TileAccess& read) { return is_input(plan, read) || plan.in_registers(read); });
}

/// An op whose points are computed one by one, of inputs and of the thread's registers, into memory that no barrier guards.
bool maps_memory(const BlockPlan& plan, const BlockOp& op) {
  const bool plain = (op.op.kind == OpKind::map || op.op.kind == OpKind::copy) && !op.op.reduction && !op.product && !op.prefix &&
                     !op.own_sums && op.carried < 0 && op.ahead == 0 && op.window.empty() && op.warp_lead < 0 &&
                     plan.cluster == 1;
  const Buffer& written = plan.buffer(op.op.write.buffer);
  return plain && (written.memory == Memory::argument || plan.in_registers(op.op.write)) && read_by_all_rows(plan, op).empty() &&
         std::all_of(op.op.reads.begin(), op.op.reads.end(),
                     [&](const TileAccess& read) { return is_input(plan, read) || plan.in_registers(read); });
}

/// The same threads at the same points.
bool same_points(const BlockOp& a, const BlockOp& b) {
  if (!(a.layout == b.layout)) return false;
  if (a.vectors != b.vectors || a.unroll_rows != b.unroll_rows || a.unroll_columns != b.unroll_columns || a.column != b.column ||
      a.divided != b.divided || a.rows != b.rows || a.roles != b.roles)
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
    const auto fits = op.reduces_columns() ? passes_over_memory : maps_memory;
    if (op.joins >= 0 || !fits(plan_, op)) return 0;
    std::size_t joined = 0;
    for (std::size_t k = first + 1; k < children.size() && is_op(children[k]); ++k) {
      BlockOp& other = plan_.ops[children[k].op];
      const bool free =
          std::all_of(children.begin() + static_cast<std::ptrdiff_t>(first), children.begin() + static_cast<std::ptrdiff_t>(k),
                      [&](const BlockNode& before) { return are_independent(plan_.ops[before.op], other); });
      if (!free || !fits(plan_, other) || !same_points(op, other) || !share_memory(plan_, op, other)) continue;
      if (plan_.in_registers(op.op.write) != plan_.in_registers(other.op.write)) continue;
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

std::set<int> read_by_all_rows(const BlockPlan& plan, const BlockOp& op) {
  const auto bound = op.row_bound();
  const bool several = !op.rows.empty() && op.column >= 0 && (!bound || op.layout.row_slots(*bound) > 1);
  if (!several || op.unroll_rows || op.ahead > 0 || op.op.reduction || op.op.guard.defined()) return {};
  if (plan.in_registers(op.op.write) || (!op.vectors && op.layout.vector > 1)) return {};
  std::set<std::string> rows;
  for (const int d : op.rows) rows.insert(op.op.dims[static_cast<std::size_t>(d)].var);
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    const OpDim& dim = op.op.dims[d];
    if (op.roles[d] == DimRole::serial && !single_valued(dim)) return {};
    // Bounds of columns are asked for before there is a row.
    for (const std::string& row : rows) {
      if (dim.lower.uses(row) || dim.upper.uses(row)) return {};
    }
  }
  std::set<int> shared;
  for (const int ordinal : unconditional_reads(op.op.value)) {
    const TileAccess& read = op.op.reads[static_cast<std::size_t>(ordinal)];
    if (read.buffer == op.op.write.buffer || plan.in_registers(read) || uses_one_of(read, rows)) continue;
    if (uses_one_of(read, {op.op.dims[static_cast<std::size_t>(op.column)].var})) shared.insert(ordinal);
  }
  return shared;
}

void join_passes(BlockPlan& plan) { PassJoiner(plan).visit(plan.root); }

/// Elementwise ops that stand behind a barrier leave the pass before it, and so do those behind them.
void part_at_barriers(BlockPlan& plan) {
  std::set<int> parted;
  const std::function<void(const BlockNode&)> visit = [&](const BlockNode& node) {
    for (const BlockNode& child : node.children) visit(child);
    if (node.kind != TileNode::Kind::op || node.op < 0) return;
    BlockOp& op = plan.ops[node.op];
    if (op.joins < 0 || op.reduces_columns()) return;
    if (op.barrier_before) parted.insert(op.joins);
    if (parted.contains(op.joins)) op.joins = -1;
  };
  visit(plan.root);
}

}  // namespace nestor::nvptx
