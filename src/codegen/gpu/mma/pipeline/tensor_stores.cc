// Results that leave through shared memory, and the places of all tiles there.
#include "codegen/gpu/mma/pipeline/pipeline_passes.h"
#include "codegen/gpu/mma/plan/joined_index.h"
#include "codegen/tile/analysis/conditions.h"
#include "support/error.h"
#include "support/tensor_view.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// Does a dim of the store have all values from 0 up to `extent`, but for those beyond `end`, which it is so far from where it is 0?
bool stops_at_end(const TensorOp& op, int d, const IntExpr& end, int extent) {
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
  if (!dim.lower.is_constant(0)) return false;
  const Affine rest = affine_of(end);
  std::vector<IntExpr> uppers;
  split_terms(dim.upper, IntOp::min, uppers);
  return std::all_of(uppers.begin(), uppers.end(),
                     [&](const IntExpr& upper) { return upper.is_constant(extent) || affine_of(upper) == rest; });
}

/// What is left of the argument along an index, or two joined ones, where the dim is 0.
IntExpr rest_along(const TensorOp& op, const Buffer& buffer, int d, int index, const JoinedIndex& joined) {
  const std::string& var = op.op.dims[static_cast<std::size_t>(d)].var;
  const auto rest = [&](int at) {
    return buffer.extents[static_cast<std::size_t>(at)] -
           op.op.write.index[static_cast<std::size_t>(at)].substitute(var, IntExpr(0));
  };
  if (joined.period == 0) return rest(index);
  // period * extent - (period * quotient + remainder)
  const IntExpr low = op.op.write.index[static_cast<std::size_t>(joined.remainder)].substitute(var, IntExpr(0));
  return IntExpr(joined.period) * rest(joined.quotient) - low;
}

/// The columns of the blocks in which the op's go: all columns of the argument by blocks of 64, or a tile's by whole blocks up to the
/// argument's end. 0: a copy of blocks would write others.
int block_columns(const TensorOp& op, const Buffer& buffer, int dense, TensorCores cores) {
  const OpDim& column = op.op.dims[static_cast<std::size_t>(op.column)];
  const JoinedIndex& joined = op.joined_columns;
  const Affine origin = affine_of(op.op.write.index[static_cast<std::size_t>(dense)]) - affine_of(IntExpr::variable(column.var));
  const Affine columns = affine_of(column.upper) - affine_of(buffer.extents[static_cast<std::size_t>(dense)]);
  if (origin == Affine{} && columns == Affine{} && column.lower.is_constant(0)) return kBlockColumns;
  const auto extent = end_bound(column);
  if (!extent) return 0;
  int width = cores == TensorCores::wgmma ? stored_columns(*extent) : kBlockColumns;
  if (joined.period % width != 0) width = stored_columns(joined.period);  // a block lies within one period
  const bool apart = joined.period % width == 0 && multiple_of(joined, column.var) % width == 0;
  const bool whole = *extent % width == 0 &&
                     stops_at_end(op, op.column, rest_along(op, buffer, op.column, dense, joined), static_cast<int>(*extent));
  return whole && apart ? width : 0;
}

/// Notes along which indices rows and columns lie. False: in no way that copies could write.
bool find_indices(const TensorPlan& plan, TensorOp& op) {
  const std::vector<IntExpr>& index = op.op.write.index;
  const auto dense = static_cast<int>(index.size()) - 1;
  const auto var = [&](int d) { return op.op.dims[static_cast<std::size_t>(d)].var; };
  const bool joins = plan.cores == TensorCores::wgmma && plan.pack == 1;
  op.row_index = runs_along(index, var(op.row));
  op.pack_index = op.pack < 0 ? -1 : runs_along(index, var(op.pack));
  if (joins && op.row_index < 0) {
    op.joined_rows = joined_along(index, var(op.row)).value_or(JoinedIndex{});
    op.row_index = op.joined_rows.quotient;
  }
  int column = runs_along(index, var(op.column));
  if (joins && column < 0) {
    op.joined_columns = joined_along(index, var(op.column)).value_or(JoinedIndex{});
    column = op.joined_columns.remainder;
  }
  const bool packed = plan.pack == 1 || (op.pack_index >= 0 && op.pack_index != dense);
  return column == dense && op.row_index >= 0 && op.row_index != dense && op.joined_rows.remainder != dense && packed;
}

/// Copies write whole periods of joined rows, or parts of one: so those of a tile start with one.
bool starts_with_copies(const TensorPlan& plan, const TensorOp& op) {
  if (op.joined_rows.period == 0) return true;
  const CopiedRows copy = copied_rows(plan, op);
  const std::int64_t start = multiple_of(op.joined_rows, op.op.dims[static_cast<std::size_t>(op.row)].var);
  return copy.rows > 0 && start % (copy.inner < 0 ? copy.rows : op.joined_rows.period) == 0;
}

IntExpr dense_start(const TensorOp& op) {
  return op.op.write.index.back().substitute(op.op.dims[static_cast<std::size_t>(op.column)].var, IntExpr(0));
}

}  // namespace

/// A whole 16-bit tile goes through shared memory, so that one copy writes it in full lines and leaves out rows that the argument has not.
void plan_stores(TensorPlan& plan) {
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::store || op.row < 0 || op.column < 0) continue;
    const Buffer& buffer = plan.buffer(op.op.write.buffer);
    if (buffer.type != ElementType::f16 && buffer.type != ElementType::bf16) continue;
    if (op.op.write.index.size() > TensorView::kRank) continue;  // of a tensor map
    if (!find_indices(plan, op) || op.op.guard.defined() || !has_whole_units(buffer) || !starts_with_copies(plan, op)) continue;
    const int width = block_columns(op, buffer, static_cast<int>(op.op.write.index.size()) - 1, plan.cores);
    if (width == 0 || (plan.cores == TensorCores::wgmma && !starts_with_unit(dense_start(op), buffer.type))) continue;
    op.stage_columns = width;
    const IntExpr rows = rest_along(op, buffer, op.row, op.row_index, op.joined_rows);
    op.through_shared = stops_at_end(op, op.row, rows, plan.work_tile_packs()) &&
                        (op.pack < 0 || stops_at_end(op, op.pack, rest_along(op, buffer, op.pack, op.pack_index, {}), plan.pack));
  }
}

namespace {

/// The event among those that a warpgroup takes once a work tile; the end of these if there is none.
std::vector<EventNode>::iterator find_once(TensorPlan& plan, Event::Kind kind, int ring, int op) {
  std::vector<EventNode>& body = plan.consumer.children;
  return std::find_if(body.begin(), body.end(), [&](const EventNode& node) {
    return node.kind == EventNode::Kind::event && node.event.kind == kind && node.event.ring == ring && node.event.op == op;
  });
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

namespace {

/// Each batch has the place of the one `places` before it, of the tile before where this one has none.
void plan_waits(TensorOp& op) {
  const auto columns = *end_bound(op.op.dims[static_cast<std::size_t>(op.column)]);
  const auto blocks = static_cast<int>(ceil_div(columns, std::int64_t{op.stage_columns}));
  const int batch = op.stage_batch(blocks), batches = blocks / batch, places = op.stage_blocks / batch;
  for (int n = 0; n < batches; ++n) {
    const int last = batches - 1 - (batches - 1 - n) % places;  // of the tile before, in the same place
    op.stage_pending.push_back(n >= places ? places - 1 : op.waits_for_place ? batches - 1 - last + n : -1);
  }
}

}  // namespace

void place_rings(TensorPlan& plan, const NvptxTarget& target) {
  const TensorNeeds needs = estimate(block_of(plan), target);
  if (!needs.refusal.empty()) user_error("Kernel '{}': {}.", plan.program->name, needs.refusal);
  const SharedPlaces& places = needs.places;
  for (std::size_t r = 0; r < plan.tile_rings(); ++r) plan.circular_buffers[r].offset = places.tiles[r];
  std::size_t results = 0;
  for (TensorOp& op : plan.ops) {
    if (op.kind != TensorOp::Kind::store || !op.through_shared) continue;
    op.stage_offset = places.results[results];
    op.stage_blocks = static_cast<int>(places.result_blocks[results++]);
    const bool again = plan.persistent() || !runs_last(plan, static_cast<int>(&op - plan.ops.data()));
    op.waits_for_place = again && plan.lender(op) < 0;
    plan_waits(op);
    release_behind_store(plan, op);
  }
  plan.barriers_offset = places.barriers;
  plan.shared_bytes = places.bytes;
  if (plan.dynamic_scheduler()) plan.circular_buffers.back().offset = places.scheduler;
}

}  // namespace nestor::nvptx
