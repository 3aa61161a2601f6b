// Reductions along columns whose threads have several rows each, and whose terms combine what belongs to a row with what belongs to a column
// (forces between bodies): a column is loaded once for all of a thread's rows, and what belongs to these stays in registers. What belongs to
// both is loaded for each (packed weights, unpacked once for the rows that they meet).
#include "codegen/gpu/simt/emit/block_emitter.h"
#include "codegen/tile/analysis/conditions.h"

#include <algorithm>

namespace nestor::nvptx {

using llvm::Value;

namespace {

/// Columns of a thread whose loads are under way at once.
constexpr int kColumnsAtOnce = 2;

}  // namespace

bool BlockEmitter::takes_rows_at_once(const std::vector<const BlockOp*>& together) const {
  return std::all_of(together.begin(), together.end(), [&](const BlockOp* op) {
    if (!op->unroll_rows || op->unroll_columns || op->crosses_warps() || op->fused || op->deferred || op->warp_lead >= 0)
      return false;
    // Where a slot has no row another one is read in its place, which must be nobody's business: what threads of this kernel write is.
    const auto is_written = [&](const TileAccess& read) {
      return std::any_of(plan_->ops.begin(), plan_->ops.end(),
                         [&](const BlockOp& other) { return other.op.write.buffer == read.buffer; });
    };
    const auto is_free = [&](const TileAccess& read) {
      return plan_->in_registers(read) || (plan_->placement(read.buffer) == nullptr && !is_written(read));
    };
    if (!std::all_of(op->op.reads.begin(), op->op.reads.end(), is_free)) return false;
    return fits_rows_at_once(*op);
  });
}

/// What a thread's columns contribute to each op, for each of its rows: [slot][op].
std::vector<std::vector<Value*>> BlockEmitter::partials_of_rows(const std::vector<const BlockOp*>& together) {
  const BlockOp& lead = *together.front();
  const auto slots = static_cast<int>(ceil_div(*lead.row_bound(), lead.layout.groups));
  std::vector<std::vector<Value*>> sums;
  for (int slot = 0; slot < slots; ++slot) {
    sums.emplace_back();
    for (const BlockOp* op : together) sums.back().push_back(new_sums(*op, 1)[0]);
  }
  for_serial(lead, [](const OpDim&) { return true; }, [&] { add_rows(together, sums); });
  std::vector<std::vector<Value*>> partials;
  for (const std::vector<Value*>& row : sums) {
    partials.emplace_back();
    for (std::size_t k = 0; k < together.size(); ++k) partials.back().push_back(read_sums(*together[k], {row[k]})[0]);
  }
  return partials;
}

/// Adds the terms of a thread's columns to the sums, [slot][op].
void BlockEmitter::add_rows(const std::vector<const BlockOp*>& together, const std::vector<std::vector<Value*>>& sums) {
  const BlockOp& lead = *together.front();
  Value* any = nullptr;  // where a slot has no row, the first one is loaded in its place, and the sum is dropped
  for (const int d : lead.rows)
    any = both(any, b_.CreateICmpSGT(extent(lead.op.dims[static_cast<std::size_t>(d)]), b_.getInt64(0)));
  when(any, [&] {
    std::vector<PairRow> rows;
    for (std::size_t slot = 0; slot < sums.size(); ++slot) rows.push_back(pair_row(together, static_cast<int>(slot)));
    const auto outer = environment_;
    const auto add = [&](int width, int column_slot) { add_pairs(together, rows, sums, width, column_slot); };
    const OpDim& dim = lead.op.dims[static_cast<std::size_t>(lead.column)];
    const std::int64_t chunk = std::int64_t{lead.layout.lanes} * lead.layout.vector;
    const auto bound = extent_bound(dim), exact = exact_extent(dim);
    if (bound && *bound <= chunk) return for_columns(lead, add);
    Value* first = b_.CreateNSWMul(b_.CreateZExt(position(lead.layout).lane, b_.getInt64Ty()),
                                   b_.getInt64(static_cast<std::uint64_t>(lead.layout.vector)));
    Value* length = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, extent(dim), b_.getInt64(0));
    Value* whole = b_.CreateNSWSub(length, b_.CreateURem(length, b_.getInt64(static_cast<std::uint64_t>(chunk))));
    const int unroll = lead.layout.vector == 1 ? kColumnsAtOnce : 1;
    loop(
        b_.getInt64(0), whole, chunk, [&](Value* base) { column_chunk(lead, b_.CreateNSWAdd(base, first), true, 0, add); },
        unroll);
    if (!exact || *exact % chunk != 0) column_chunk(lead, b_.CreateNSWAdd(whole, first), false, 0, add);
    environment_ = outer;
  });
}

/// The dims of a slot's row, or of the first row in its place, and what each op reads of it.
BlockEmitter::PairRow BlockEmitter::pair_row(const std::vector<const BlockOp*>& together, int slot) {
  const BlockOp& lead = *together.front();
  const auto outer = environment_;
  PairRow row;
  Value* exists = set_row(lead, slot, b_.getInt64(static_cast<std::uint64_t>(slot)));
  for (const int d : lead.rows) {
    const OpDim& dim = lead.op.dims[static_cast<std::size_t>(d)];
    if (exists != nullptr) environment_[dim.var] = b_.CreateSelect(exists, environment_.at(dim.var), integer(dim.lower));
    row.dims[dim.var] = environment_.at(dim.var);
  }
  for (const BlockOp* op : together) {
    name_dims(lead, *op);
    row.loaded.push_back(read_pairs(*op, PairRead::row, 1, {slot, 0}));
  }
  environment_ = outer;
  return row;
}

/// What the op reads of that kind. Reads behind a condition are made where they are inside of the tensor; what they give
/// elsewhere is used nowhere.
BlockEmitter::Loaded BlockEmitter::read_pairs(const BlockOp& op, PairRead wanted, int width, Slot slot) {
  const auto kind_of = [&](const TileAccess& access) {
    if (!uses_any(access, op.op.dims[static_cast<std::size_t>(op.column)].var)) return PairRead::row;
    return follows_rows(op, access) ? PairRead::both : PairRead::column;
  };
  std::set<int> reads;
  op.op.value.visit([&](const ScalarExpr& node) {
    if (node.op() == ScalarOp::read) reads.insert(node.ordinal());
  });
  const std::set<int> always = op.op.guard.defined() ? std::set<int>() : unconditional_reads(op.op.value);
  Loaded loaded;
  for (const int ordinal : reads) {
    const TileAccess& access = op.op.reads[static_cast<std::size_t>(ordinal)];
    if (kind_of(access) != wanted) continue;
    if (always.contains(ordinal) || plan_->in_registers(access)) {
      loaded[ordinal] = load_read(op, ordinal, width, slot);
      continue;
    }
    for (int e = 0; e < width; ++e) {
      at_element(op, e, [&] { loaded[ordinal].push_back(masked_element(op, ordinal, slot, 0, inside_tensor(access))); });
    }
  }
  return loaded;
}

void BlockEmitter::add_pairs(const std::vector<const BlockOp*>& together, const std::vector<PairRow>& rows,
                             const std::vector<std::vector<Value*>>& sums, int width, int column_slot) {
  const BlockOp& lead = *together.front();
  std::vector<Loaded> columns;
  for (const BlockOp* op : together) {
    name_dims(lead, *op);
    columns.push_back(read_pairs(*op, PairRead::column, width, {0, column_slot}));
  }
  for (std::size_t slot = 0; slot < rows.size(); ++slot) {
    for (const auto& [var, value] : rows[slot].dims) environment_[var] = value;
    for (std::size_t k = 0; k < together.size(); ++k) {
      const BlockOp& op = *together[k];
      name_dims(lead, op);
      Loaded loaded = columns[k];
      for (const auto& [ordinal, values] : rows[slot].loaded[k])
        loaded[ordinal] = std::vector<Value*>(static_cast<std::size_t>(width), values[0]);
      const ElementType type = op.sum_type();
      const Slot at{static_cast<int>(slot), column_slot};
      loaded.merge(read_pairs(op, PairRead::both, width, at));
      Value* holds = op.op.guard.defined() ? condition(op.op.guard) : nullptr;
      for (Value* value : convert(point_values(op, op.op.value, width, at, loaded), op.op.value.type(), type)) {
        Value* old = read_sums(op, {sums[slot][k]})[0];
        Value* sum = emit_combine(b_, math_, *op.op.reduction, type, old, value);
        b_.CreateStore(holds == nullptr ? sum : b_.CreateSelect(holds, sum, old), sums[slot][k]);
      }
    }
  }
}

}  // namespace nestor::nvptx
