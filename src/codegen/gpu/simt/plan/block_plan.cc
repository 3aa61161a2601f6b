// The order of planning passes, and the block plan's own queries.
#include "codegen/gpu/simt/plan/block_plan.h"

#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace nestor::nvptx {
namespace {

/// Accumulators a thread holds at most in one register block: with the operands this stays below 128 registers.
constexpr std::int64_t kAccumulators = 64;

/// Is it a product of its own for each of many places that lie side by side in both operands? Lanes take the places, and a thread some rows.
bool multiplies_place_by_place(const TileOp& op, const std::vector<int>& outer, const std::vector<Buffer>& buffers) {
  constexpr std::int64_t kFewestPlaces = 16;
  const int column = choose_column(op, buffers, spreadable_dims(op));
  if (column < 0 || op.dims[column].reduced || std::find(outer.begin(), outer.end(), column) == outer.end()) return false;
  const std::string& place = op.dims[column].var;
  return extent_bound(op.dims[column]).value_or(0) >= kFewestPlaces &&
         std::all_of(op.reads.begin(), op.reads.end(), [&](const TileAccess& read) { return uses_any(read, place); });
}

class Normaliser {
 public:
  explicit Normaliser(BlockPlan& plan) : plan_(plan) {
    for (const GridLoop& loop : plan.kernel->grid) enter(loop.var, loop.lower, loop.step);
  }

  BlockNode visit(const TileTree& tree) {
    BlockNode node;
    node.kind = tree->kind;
    if (tree->kind == TileNode::Kind::op) return visit_op(tree->op);
    if (tree->kind == TileNode::Kind::condition) node.condition = tree->condition;
    const Multiples outer = multiples_;
    if (tree->kind == TileNode::Kind::loop) {
      node.var = tree->var;
      node.lower = tree->lower;
      node.upper = tree->upper;
      node.step = tree->step;
      enter(tree->var, tree->lower, tree->step);
    }
    for (const TileTree& child : tree->children) node.children.push_back(visit(child));
    multiples_ = outer;
    return node;
  }

 private:
  void enter(const std::string& var, const IntExpr& lower, std::int64_t step) {
    std::set<std::string> sizes;
    const std::set<std::string> none;
    multiples_[var] = std::gcd(known_multiple(lower, multiples_, none, 1, sizes), step);
  }

  BlockNode visit_op(const TileOp& op) {
    if (const int serial = leading_serial_dims(op); serial > 0) return visit(with_loop_over(op, 0));
    if (const auto outer = product_outer_dims(op)) {
      if (multiplies_place_by_place(op, *outer, plan_.program->buffers)) return leaf(op, std::nullopt);
      if (!outer->empty()) return visit(with_loop_over(op, outer->front()));
      if (const auto form = product_form(op)) return visit_product(op, *form);
    }
    if (const auto form = terms_form(op)) return visit_product(op, *form);
    if (const auto sums = plan_.cluster == 1 ? prefix_sums_of(op, plan_.program->buffers) : std::nullopt) {
      BlockNode node = leaf(sums->op, std::nullopt);
      plan_.ops.back().prefix = sums->prefix;
      return node;
    }
    return leaf(op, std::nullopt);
  }

  BlockNode visit_product(const TileOp& op, const ProductForm& form) {
    const auto rows = extent_bound(op.dims[form.row]), columns = extent_bound(op.dims[form.column]);
    if (!rows || !columns) return leaf(op, std::nullopt);
    if (*rows * *columns > kAccumulators * plan_.threads) return visit(cut(op, *rows >= *columns ? form.row : form.column));
    return leaf(op, form);
  }

  /// The op on half the extent of a dim, with a loop over both halves.
  TileTree cut(const TileOp& op, int d) {
    const std::int64_t half = round_up(ceil_div(*extent_bound(op.dims[d]), 2), 16);
    const std::string var = fmt::format("{}_part{}", op.dims[d].var, parts_++);
    TileOp inner = op;
    OpDim& dim = inner.dims[d];
    dim.lower = op.dims[d].lower + IntExpr::variable(var);
    dim.upper = min(dim.lower + IntExpr(half), op.dims[d].upper);
    dim.max_extent = half;
    auto loop = std::make_shared<TileNode>();
    loop->kind = TileNode::Kind::loop;
    loop->var = var;
    loop->lower = 0;
    loop->upper = op.dims[d].upper - op.dims[d].lower;
    loop->step = half;
    loop->children = {make_op(inner)};
    const auto exact = exact_extent(op.dims[d]);
    if (exact && *exact % half == 0) {
      inner.dims[d].upper = inner.dims[d].lower + IntExpr(half);
      loop->children = {make_op(inner)};
    }
    return loop;
  }

  BlockNode leaf(const TileOp& op, const std::optional<ProductForm>& form) {
    BlockNode node;
    node.kind = TileNode::Kind::op;
    node.op = static_cast<int>(plan_.ops.size());
    BlockOp block_op;
    block_op.op = op;
    if (form) block_op.product = ProductPlan{*form};
    block_op.multiples = multiples_;
    block_op.read_vectors.assign(op.reads.size(), false);
    block_op.strided_reads.assign(op.reads.size(), {});
    plan_.ops.push_back(std::move(block_op));
    return node;
  }

  BlockPlan& plan_;
  Multiples multiples_;
  int parts_ = 0;
};

}  // namespace

std::string row_token(std::size_t row) { return "#row" + std::to_string(row); }

int BlockOp::threads_along(int dim) const {
  if (dim == column) return layout.lanes;
  return roles[static_cast<std::size_t>(dim)] == DimRole::row ? layout.groups : 1;
}

std::optional<std::int64_t> BlockOp::row_bound() const {
  std::int64_t product = 1;
  for (int d : rows) {
    const auto extent = extent_bound(op.dims[d]);
    if (!extent) return std::nullopt;
    product *= std::max<std::int64_t>(*extent, 0);
  }
  return product;
}

std::int64_t BlockOp::row_slots() const {
  return std::max<std::int64_t>(unroll_rows ? layout.row_slots(row_bound().value_or(1)) : 1, 1);
}

std::int64_t BlockOp::prefix_chunks() const {
  const std::int64_t chunk = static_cast<std::int64_t>(layout.lanes) * layout.vector;
  const auto bound = column_bound();
  return bound && (unroll_columns || *bound <= chunk) ? std::max<std::int64_t>(ceil_div(*bound, chunk), 1) : 1;
}

bool BlockOp::prefix_in_one_pass() const {
  const auto bound = column_bound();
  return bound && *bound <= prefix_chunks() * layout.lanes * layout.vector;
}

std::optional<std::int64_t> BlockOp::column_bound() const {
  if (column < 0) return 1;
  return extent_bound(op.dims[column]);
}

std::int64_t BlockPlan::partials_bytes(const BlockOp& op) const {
  if (op.prefix) return op.prefix_chunks() * op.layout.threads() / 32 * 4;
  if (!op.crosses_warps()) return op.group_partials() * round_up(op.column_bound().value_or(1), kPartialsPad) * 4;
  return op.row_slots() * (op.gathers ? threads : op.layout.threads()) / 32 * 4 * op.partial_words();
}

std::int64_t BlockPlan::exchanged_bytes(const BlockOp& op) const {
  return op.gathers ? op.row_slots() * cluster * 4 * op.partial_words() : partials_bytes(op);
}

const Placement* BlockPlan::placement(int k) const {
  const auto found = placements.find(k);
  return found == placements.end() ? nullptr : &found->second;
}

bool BlockPlan::in_registers(const TileAccess& access) const {
  const Placement* place = placement(access.buffer);
  return place != nullptr && place->kind == Placement::Kind::registers;
}

void normalise(BlockPlan& plan) {
  Normaliser normaliser(plan);
  plan.root = normaliser.visit(plan.kernel->body);
  if (plan.cluster == 1) return;
  for (const BlockOp& op : plan.ops) {
    if (op.product)
      user_error("Kernel '{}': a cluster of blocks cannot share the product '{}' yet; leave it to one block (cluster 1).",
                 plan.program->name, op.op.name);
  }
}

}  // namespace nestor::nvptx
