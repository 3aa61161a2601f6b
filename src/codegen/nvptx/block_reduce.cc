// Reductions along columns: in a thread, across the lanes of a warp by butterfly shuffles, across warps through shared memory.
#include "codegen/nvptx/block_emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// Independent partial sums a thread keeps, so that an addition need not wait for the one before.
constexpr int kPartialSums = 4;
/// Partial results that each thread combines by itself.
constexpr int kFewPartials = 8;

}  // namespace

void BlockEmitter::emit_column_reduction(const BlockOp& op) {
  const bool crosses = op.crosses_warps();
  const bool shares = plan_->cluster > 1;
  if (crosses && shares && op.unroll_rows) begin_exchange(op);
  for_rows(op, crosses, [&](int slot, Value* slot_value, Value* row_ok) {
    Value* total = butterfly(thread_partial(op, slot, row_ok), op);
    if (!crosses) return finish_reduction(op, slot, row_ok, total);
    Value* place = op.unroll_rows ? slot_value : b_.getInt64(0);
    if (shares && !op.unroll_rows) begin_exchange(op);
    publish_partial(op, place, total);
    if (op.unroll_rows) return;
    meet(op, false);
    finish_reduction(op, slot, row_ok, combined_partials(op, place));
    if (!op.rows.empty() && !shares) barrier();  // the next rows use the same place
  });
  if (!crosses || !op.unroll_rows) return;
  meet(op, true);
  for_rows(op, true, [&](int slot, Value* slot_value, Value* row_ok) {
    finish_reduction(op, slot, row_ok, combined_partials(op, slot_value));
  });
}

/// What this thread's own columns contribute.
Value* BlockEmitter::thread_partial(const BlockOp& op, int slot, Value* row_ok) {
  const ElementType type = op.sum_type();
  const int count = op.vectors ? std::min(op.layout.vector, kPartialSums) : 1;
  const std::vector<Value*> sums = new_sums(op, count);
  when(row_ok, [&] {
    for_serial(
        op, [](const OpDim&) { return true; },
        [&] { for_columns(op, [&](int width, int column_slot) { accumulate(op, sums, width, {slot, column_slot}); }); });
  });
  std::vector<Value*> values = read_sums(op, sums);
  while (values.size() > 1) {
    const std::size_t half = values.size() / 2;
    for (std::size_t k = 0; k < half; ++k)
      values[k] = emit_combine(b_, math_, *op.op.reduction, type, values[k], values[k + half]);
    values.resize(half);
  }
  return values[0];
}

/// The value of the lane whose number differs in the bit `distance`.
Value* BlockEmitter::shuffled(Value* value, ElementType type, int distance) {
  const auto shuffle =
      type == ElementType::i32 ? llvm::Intrinsic::nvvm_shfl_sync_bfly_i32 : llvm::Intrinsic::nvvm_shfl_sync_bfly_f32;
  return b_.CreateIntrinsic(shuffle, {},
                            {b_.getInt32(0xffffffff), value, b_.getInt32(static_cast<std::uint32_t>(distance)), b_.getInt32(31)});
}

/// Combines over the lanes of a row within a warp; every lane gets the result.
Value* BlockEmitter::butterfly(Value* value, const BlockOp& op) {
  const ElementType type = op.sum_type();
  for (int distance = std::min(op.layout.lanes, 32) / 2; distance > 0; distance /= 2)
    value = emit_combine(b_, math_, *op.op.reduction, type, value, shuffled(value, type, distance));
  return value;
}

/// Where a warp of this block (when it gathers), or of all that share the row, puts its result.
Value* BlockEmitter::partial_address(const BlockOp& op, Value* row_slot, Value* warp) {
  const auto groups = static_cast<std::uint64_t>(op.layout.groups);
  const auto warps = static_cast<std::uint64_t>((op.gathers ? plan_->threads : op.layout.lanes) / 32);
  Value* group = b_.CreateZExt(position(op.layout).group, b_.getInt64Ty());
  Value* row = b_.CreateNSWAdd(b_.CreateNSWMul(row_slot, b_.getInt64(groups)), group);
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(warps)), b_.CreateZExt(warp, b_.getInt64Ty()));
  llvm::Type* type = register_type(b_.getContext(), op.sum_type());
  if (plan_->cluster > 1 && !op.gathers) return b_.CreateInBoundsGEP(type, exchange_.place, {index});
  return shared_address(type, op.partials_offset, index);
}

/// Where the result of warp or block `from` of a cluster arrives.
Value* BlockEmitter::exchanged_address(const BlockOp& op, Value* row_slot, Value* from) {
  if (!op.gathers) return partial_address(op, row_slot, from);
  Value* blocks = b_.getInt64(static_cast<std::uint64_t>(plan_->cluster));
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(row_slot, blocks), b_.CreateZExt(from, b_.getInt64Ty()));
  return b_.CreateInBoundsGEP(register_type(b_.getContext(), op.sum_type()), exchange_.place, {index});
}

/// One lane of each warp stores the warp's result; in a cluster, one lane for each block sends it there.
void BlockEmitter::publish_partial(const BlockOp& op, Value* row_slot, Value* total) {
  const bool sends = plan_->cluster > 1 && !op.gathers;
  Value* thread = op.gathers ? own_thread_ : position(op.layout).lane;
  Value* lane = b_.CreateURem(thread, b_.getInt32(32));
  Value* address = partial_address(op, row_slot, b_.CreateUDiv(thread, b_.getInt32(32)));
  when(b_.CreateICmpULT(lane, b_.getInt32(sends ? static_cast<std::uint32_t>(plan_->cluster) : 1U)), [&] {
    if (sends) return send(b_.CreateBitCast(total, b_.getInt32Ty()), address, lane);
    b_.CreateAlignedStore(total, address, llvm::Align(4));
  });
}

/// The first warp combines what the warps of its block have gathered, and sends it to all blocks.
void BlockEmitter::send_gathered(const BlockOp& op, bool all_rows) {
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
  llvm::Type* type = register_type(b_.getContext(), op.sum_type());
  const auto warps = static_cast<std::uint32_t>(plan_->threads / 32);
  when(b_.CreateICmpULT(own_thread_, b_.getInt32(32)), [&] {
    for (std::int64_t row = 0; row < (all_rows ? op.row_slots() : 1); ++row) {
      Value* slot = b_.getInt64(static_cast<std::uint64_t>(row));
      // Lanes without a warp read the first one's result and drop it.
      Value* some = b_.CreateICmpULT(own_thread_, b_.getInt32(warps));
      Value* warp = b_.CreateSelect(some, own_thread_, b_.getInt32(0));
      Value* value = b_.CreateAlignedLoad(type, partial_address(op, slot, warp), llvm::Align(4));
      const double neutral = neutral_element(*op.op.reduction, op.sum_type());
      value = b_.CreateSelect(some, value, scalar_constant(b_.getContext(), op.sum_type(), neutral));
      Value* total = b_.CreateBitCast(butterfly(value, op), b_.getInt32Ty());
      when(b_.CreateICmpULT(own_thread_, b_.getInt32(static_cast<std::uint32_t>(plan_->cluster))),
           [&] { send(total, exchanged_address(op, slot, arguments_.cluster_rank), own_thread_); });
    }
  });
}

/// After this, every thread can read what all warps or blocks have published.
void BlockEmitter::meet(const BlockOp& op, bool all_rows) {
  if (plan_->cluster == 1) return barrier();
  if (op.gathers) send_gathered(op, all_rows);
  end_exchange();
}

/// All results of a row, of warps or of blocks that gathered theirs, combined in one order, so that every thread gets the same
/// value: one after the other when they are few, else spread over the lanes of each warp.
Value* BlockEmitter::combined_partials(const BlockOp& op, Value* row_slot) {
  const ElementType type = op.sum_type();
  const int count = op.gathers ? plan_->cluster : op.layout.lanes / 32;
  const auto read = [&](Value* from) -> Value* {
    return b_.CreateAlignedLoad(register_type(b_.getContext(), type), exchanged_address(op, row_slot, from), llvm::Align(4));
  };
  Value* total = nullptr;
  const auto add = [&](Value* value) {
    total = total == nullptr ? value : emit_combine(b_, math_, *op.op.reduction, type, total, value);
  };
  if (count <= kFewPartials || count % 32 != 0 || op.layout.groups > 1) {
    for (int from = 0; from < count; ++from) add(read(b_.getInt32(static_cast<std::uint32_t>(from))));
    return total;
  }
  Value* lane = b_.CreateURem(position(op.layout).lane, b_.getInt32(32));
  for (int from = 0; from < count; from += 32) add(read(b_.CreateAdd(lane, b_.getInt32(static_cast<std::uint32_t>(from)))));
  return butterfly(total, op);
}

void BlockEmitter::finish_reduction(const BlockOp& op, int slot, Value* row_ok, Value* total) {
  if (plan_->in_registers(op.op.write)) return write_sums(op, {total}, {slot, 0});
  when(both(row_ok, owner(op)), [&] { write_sums(op, {total}, {slot, 0}); });
}

}  // namespace nestor::nvptx
