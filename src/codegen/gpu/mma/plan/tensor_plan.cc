// What is known of a tensor plan's ops and their accesses.
#include "codegen/gpu/mma/plan/tensor_plan.h"

#include "support/tensor_view.h"

#include <fmt/format.h>

#include <numeric>

namespace nestor::nvptx {

bool starts_with_unit(const IntExpr& dense, ElementType type) {
  return dense.divisor() * static_cast<std::int64_t>(size_in_bytes(type)) % kTensorMapAlignment == 0;
}

int runs_along(const std::vector<IntExpr>& index, const std::string& var, int stride) {
  int found = -1;
  for (int p = 0; p < static_cast<int>(index.size()); ++p) {
    if (!index[static_cast<std::size_t>(p)].uses(var)) continue;
    if (found >= 0 || index[static_cast<std::size_t>(p)].coefficient(var) != stride) return -1;
    found = p;
  }
  return found;
}

int strides_along(const std::vector<IntExpr>& index, const std::string& var, int& stride) {
  for (stride = 1; stride <= kMostStride; ++stride) {
    if (const int found = runs_along(index, var, stride); found >= 0) return found;
  }
  stride = 1;
  return -1;
}

CopiedRows copied_rows(const TensorPlan& plan, const TensorOp& store) {
  const JoinedIndex& joined = store.joined_rows;
  if (joined.period == 0) return {kWarpgroupRows, store.row_index, store.pack_index, store.pack_index < 0 ? 1 : plan.pack};
  // Whole periods at once, or a part of one that others follow. The swizzle repeats every 8 rows.
  if (kWarpgroupRows % joined.period == 0)
    return {kWarpgroupRows, joined.quotient, joined.remainder, static_cast<int>(joined.period)};
  const auto rows = static_cast<int>(std::gcd(joined.period, std::int64_t{kWarpgroupRows}));
  return rows % kSumColumns == 0 ? CopiedRows{rows, joined.remainder} : CopiedRows{};
}

bool has_whole_units(const Buffer& buffer) {
  const std::optional<std::int64_t> columns = buffer.extents.back().as_constant();
  return !columns || *columns * static_cast<std::int64_t>(size_in_bytes(buffer.type)) % kTensorMapAlignment == 0;
}

std::vector<int> copied_order(std::size_t rank, int row_index, int pack_index) {
  std::vector<int> order;
  if (pack_index < 0) return order;
  for (int p = 0; p + 1 < static_cast<int>(rank); ++p) {
    if (p != row_index && p != pack_index) order.push_back(p);
  }
  order.insert(order.end(), {row_index, pack_index, static_cast<int>(rank) - 1});
  return order;
}

namespace {

/// The tile of a circular buffer: does some warpgroup read its own rows of it alone, while it stays for the work tile? Of several
/// results the first may leave before the last product has read it.
BlockTile tile_of(const TensorPlan& plan, int number) {
  const CircularBuffer& ring = plan.circular_buffers[static_cast<std::size_t>(number)];
  BlockTile tile = ring.tile();
  tile.what = fmt::format("a tile of '{}'", plan.buffer(ring.buffer).name);
  const auto reads = std::count_if(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& op) { return op.a_ring == number; });
  const auto results = std::count_if(plan.ops.begin(), plan.ops.end(), [](const TensorOp& op) { return op.through_shared; });
  tile.lends =
      !ring.streamed && (reads == 1 || results <= 1) &&
      std::any_of(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& op) { return op.a_ring == number && !op.a_by_row; });
  return tile;
}

}  // namespace

bool runs_last(const TensorPlan& plan, int op) {
  const std::vector<EventNode>& body = plan.consumer.children;
  return std::any_of(body.begin(), body.end(),
                     [&](const EventNode& node) { return is(node, Event::Kind::compute) && node.event.op == op; });
}

TensorBlock block_of(const TensorPlan& plan) {
  TensorBlock block{.warpgroups = plan.warpgroups,
                    .row_tiles = plan.row_tiles,
                    .work_tiles = plan.warpgroups / plan.sharing_warpgroups(),
                    .blocks_per_unit = plan.blocks_per_unit(),
                    .persistent = plan.persistent(),
                    .scheduler = plan.dynamic_scheduler()};
  const bool late = std::any_of(plan.ops.begin(), plan.ops.end(), [](const TensorOp& op) { return op.late; });
  if (late && plan.kernel->shape.intra_warpgroup_overlap > 1)
    block.chains = plan.kernel->shape.intra_warpgroup_overlap - 1;  // two stretches run without
  for (int r = 0; r < static_cast<int>(plan.tile_rings()); ++r) block.tiles.push_back(tile_of(plan, r));
  for (int k = 0; k < static_cast<int>(plan.ops.size()); ++k) {
    const TensorOp& op = plan.ops[static_cast<std::size_t>(k)];
    if (op.kind == TensorOp::Kind::product) block.products.push_back({op.n, op.a_ring < 0 ? op.halves * op.k : 0});
    if (op.kind == TensorOp::Kind::store && op.through_shared)
      block.results.push_back(
          {*end_bound(op.op.dims[static_cast<std::size_t>(op.column)]), runs_last(plan, k), op.stage_columns});
  }
  return block;
}

bool leads(const TensorOp& op) { return op.kind == TensorOp::Kind::product && op.a_ring >= 0; }

bool writes_zero(const TileOp& op) { return op.value.is_constant(0) && !op.reduction; }

bool scales(const TileOp& op, int buffer) {
  if (op.write.buffer != buffer || op.reduction || op.value.op() != ScalarOp::mul) return false;
  const auto is_sum = [&](const ScalarExpr& expr) {
    return expr.op() == ScalarOp::read && op.reads[static_cast<std::size_t>(expr.ordinal())].buffer == buffer;
  };
  const auto uses_sum = [&](const ScalarExpr& expr) {
    bool found = false;
    expr.visit([&](const ScalarExpr& node) { found = found || is_sum(node); });
    return found;
  };
  const ScalarExpr &a = op.value.args()[0], &b = op.value.args()[1];
  return (is_sum(a) && !uses_sum(b)) || (is_sum(b) && !uses_sum(a));
}

}  // namespace nestor::nvptx
