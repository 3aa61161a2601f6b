// Results that leave through shared memory, and the places of all tiles there.
#include "codegen/gpu/mma/pipeline/pipeline_passes.h"
#include "codegen/gpu/target/block_registers.h"
#include "codegen/tile/analysis/conditions.h"
#include "support/error.h"
#include "support/tensor_view.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr std::int64_t kSharedAlignment = 1024;  ///< of swizzled tiles
constexpr std::int64_t kBarrierBytes = 512;

/// Does a dim of the store have all values from 0 up to `extent`, but for those beyond the end of the argument along `index`?
bool stops_at_end(const TensorOp& op, const Buffer& buffer, int d, int index, int extent) {
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
  if (!dim.lower.is_constant(0)) return false;
  const auto p = static_cast<std::size_t>(index);
  const Affine rest = affine_of(buffer.extents[p] - op.op.write.index[p].substitute(dim.var, IntExpr(0)));
  std::vector<IntExpr> uppers;
  split_terms(dim.upper, IntOp::min, uppers);
  return std::all_of(uppers.begin(), uppers.end(),
                     [&](const IntExpr& upper) { return upper.is_constant(extent) || affine_of(upper) == rest; });
}

/// All columns of the argument, or whole blocks of them up to its end: what a copy of blocks writes.
bool has_whole_blocks(const TensorOp& op, const Buffer& buffer, int dense) {
  const OpDim& column = op.op.dims[static_cast<std::size_t>(op.column)];
  const Affine origin = affine_of(op.op.write.index[static_cast<std::size_t>(dense)]) - affine_of(IntExpr::variable(column.var));
  const Affine columns = affine_of(column.upper) - affine_of(buffer.extents[static_cast<std::size_t>(dense)]);
  if (origin == Affine{} && columns == Affine{} && column.lower.is_constant(0)) return true;
  const auto extent = extent_bound(column);
  return extent && *extent % kBlockColumns == 0 && stops_at_end(op, buffer, op.column, dense, static_cast<int>(*extent));
}

/// Can rows of the argument be whole units of 16 bytes? Copies write no less, even beyond a row's end. Where its length is not known
/// here, the runtime refuses other lengths (support/tensor_view.h).
bool has_whole_units(const Buffer& buffer) {
  const std::optional<std::int64_t> columns = buffer.extents.back().as_constant();
  return !columns || *columns * static_cast<std::int64_t>(size_in_bytes(buffer.type)) % kTensorMapAlignment == 0;
}

}  // namespace

/// A whole 16-bit tile goes through shared memory, so that one copy writes it in full lines and leaves out rows that the argument has not.
void plan_stores(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::store || op.row < 0 || op.column < 0) continue;
    const Buffer& buffer = plan.buffer(op.op.write.buffer);
    if (buffer.type != ElementType::f16 && buffer.type != ElementType::bf16) continue;
    const OpDim &row = op.op.dims[static_cast<std::size_t>(op.row)], &column = op.op.dims[static_cast<std::size_t>(op.column)];
    const std::vector<IntExpr>& index = op.op.write.index;
    const auto dense = static_cast<int>(index.size()) - 1;
    op.row_index = runs_along(index, row.var);
    op.pack_index = op.pack < 0 ? -1 : runs_along(index, op.op.dims[static_cast<std::size_t>(op.pack)].var);
    if (runs_along(index, column.var) != dense || op.row_index == dense) continue;
    if (plan.pack > 1 && (op.pack_index < 0 || op.pack_index == dense)) continue;
    if (op.row_index < 0 || op.op.guard.defined() || !has_whole_units(buffer) || !has_whole_blocks(op, buffer, dense)) continue;
    op.through_shared = stops_at_end(op, buffer, op.row, op.row_index, plan.work_tile_packs()) &&
                        (op.pack < 0 || stops_at_end(op, buffer, op.pack, op.pack_index, plan.pack));
  }
}

namespace {

/// Bytes of shared memory of a block whose tiles end at `end`.
std::int64_t block_bytes(const TensorPlan& plan, std::int64_t end) {
  return end + (plan.cores == TensorCores::wgmma ? kBarrierBytes : 0) + kSharedAlignment;
}

/// Do all resident blocks find room for so many bytes?
bool have_room(const TensorPlan& plan, const NvptxTarget& target, std::int64_t bytes) {
  return plan.blocks_per_unit() * (bytes + kReservedBytes) <= target.shared_limit + kReservedBytes;
}

/// The event among those that a warpgroup takes once a work tile; the end of these if there is none.
std::vector<EventNode>::iterator find_once(TensorPlan& plan, Event::Kind kind, int ring, int op) {
  std::vector<EventNode>& body = plan.consumer.children;
  return std::find_if(body.begin(), body.end(), [&](const EventNode& node) {
    return node.kind == EventNode::Kind::event && node.event.kind == kind && node.event.ring == ring && node.event.op == op;
  });
}

/// A place for the tile of a store. A warpgroup's rows of an operand that stays for the work tile are read by that warpgroup alone: when they are done
/// with, the same place takes its rows of the result. In resident blocks the next work tile's operand would have to wait until the result has
/// left, so that they have a place of its own where there is room.
std::int64_t place_store(TensorPlan& plan, const TensorOp& op, const NvptxTarget& target, std::int64_t& end) {
  const std::int64_t columns = *extent_bound(op.op.dims[static_cast<std::size_t>(op.column)]);
  const std::int64_t bytes = std::int64_t{plan.rows()} * kSwizzleBytes * ceil_div(columns, kBlockColumns);
  const auto number = static_cast<int>(&op - plan.ops.data());
  const bool may_borrow =
      !plan.persistent() || (plan.cores == TensorCores::wgmma && !have_room(plan, target, block_bytes(plan, end + bytes)) &&
                             find_once(plan, Event::Kind::compute, -1, number) != plan.consumer.children.end());
  for (const CircularBuffer& ring : plan.circular_buffers) {
    const bool of_warpgroup = std::any_of(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& other) {
      return other.a_ring == &ring - plan.circular_buffers.data() && !other.a_by_row;
    });
    const bool taken =
        std::any_of(plan.ops.begin(), plan.ops.end(), [&](const TensorOp& other) { return other.stage_offset == ring.offset; });
    const bool stays = !ring.streamed && !(plan.persistent() && ring.in_registers);
    if (may_borrow && stays && of_warpgroup && !taken && ring.stage_bytes() >= bytes) return ring.offset;
  }
  const std::int64_t offset = end;
  end += bytes;
  return offset;
}

/// In a resident block, a tile whose place lets a result out is released when that has left.
void release_behind_store(TensorPlan& plan, const TensorOp& store) {
  const int ring = plan.lender(store), op = static_cast<int>(&store - plan.ops.data());
  if (!plan.persistent() || ring < 0) return;
  std::vector<EventNode>& body = plan.consumer.children;
  const auto release = find_once(plan, Event::Kind::release, ring, -1);
  if (release == body.end()) internal_error("kernel '{}': a tile that stays is not released", plan.program->name);
  const EventNode moved = *release;
  body.erase(release);
  const auto stored = find_once(plan, Event::Kind::compute, -1, op);
  body.insert(stored + 1, {event_node(Event::Kind::wait_stores, -1), moved});
}

}  // namespace

void place_rings(TensorPlan& plan, const NvptxTarget& target) {
  std::int64_t at = 0;
  for (CircularBuffer& ring : plan.circular_buffers) {
    if (ring.scheduler) continue;
    if (plan.cores == TensorCores::wgmma && ring.copied_rows() > kMostCopiedRows)
      user_error("Kernel '{}': a tile of '{}' has {} rows, and a tensor copy moves {} at most: choose smaller tiles.",
                 plan.program->name, plan.buffer(ring.buffer).name, ring.copied_rows(), kMostCopiedRows);
    ring.offset = at;
    at += round_up(ring.stage_bytes(), kSharedAlignment) * ring.stages;
  }
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::store || !op.through_shared) continue;
    op.stage_offset = place_store(plan, op, target, at);
    release_behind_store(plan, op);
  }
  plan.barriers_offset = at;
  plan.shared_bytes = block_bytes(plan, at);
  if (plan.dynamic_scheduler())
    plan.circular_buffers.back().offset =
        plan.shared_bytes - kSharedAlignment - std::int64_t{plan.circular_buffers.back().stages} * kWorkTileBytes;
  if (!have_room(plan, target, plan.shared_bytes) && plan.shared_bytes <= target.shared_limit)
    user_error(
        "Kernel '{}': {} blocks of {} bytes of shared memory do not fit the {} bytes of a multiprocessor: choose smaller "
        "tiles, fewer stages or fewer blocks.",
        plan.program->name, plan.blocks_per_unit(), plan.shared_bytes + kReservedBytes, target.shared_limit + kReservedBytes);
  if (plan.shared_bytes > target.shared_limit)
    user_error(
        "Kernel '{}' needs {} bytes of shared memory for its operands' tiles; a block has {}: choose smaller tiles or fewer "
        "stages.",
        plan.program->name, plan.shared_bytes, target.shared_limit);
}

}  // namespace nestor::nvptx
