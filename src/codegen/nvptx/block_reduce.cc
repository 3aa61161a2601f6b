// Reductions along columns: in a thread, across the lanes of a warp by butterfly shuffles, across warps through shared memory.
#include "codegen/nvptx/block_emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// Independent partial sums a thread keeps, so that an addition need not wait for the one before.
constexpr int kPartialSums = 4;

}  // namespace

void BlockEmitter::emit_column_reduction(const BlockOp& op) {
  const bool crosses = op.crosses_warps();
  std::vector<Value*> row_slots;
  for_rows(op, crosses, [&](int slot, Value* slot_value, Value* row_ok) {
    Value* total = butterfly(thread_partial(op, slot, row_ok), op);
    if (!crosses) return finish_reduction(op, slot, row_ok, total);
    Value* lane = b_.CreateURem(position(op.layout).lane, b_.getInt32(32));
    Value* warp = b_.CreateUDiv(position(op.layout).lane, b_.getInt32(32));
    Value* place = op.unroll_rows ? slot_value : b_.getInt64(0);
    when(b_.CreateICmpEQ(lane, b_.getInt32(0)),
         [&] { b_.CreateAlignedStore(total, partial_address(op, place, warp), llvm::Align(4)); });
    if (op.unroll_rows) return;
    barrier();
    finish_reduction(op, slot, row_ok, combined_partials(op, place));
    if (!op.rows.empty()) barrier();  // the next rows use the same place
  });
  if (!crosses || !op.unroll_rows) return;
  barrier();
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

/// Combines over the lanes of a row within a warp; every lane gets the result.
Value* BlockEmitter::butterfly(Value* value, const BlockOp& op) {
  const ElementType type = op.sum_type();
  const auto shuffle =
      type == ElementType::i32 ? llvm::Intrinsic::nvvm_shfl_sync_bfly_i32 : llvm::Intrinsic::nvvm_shfl_sync_bfly_f32;
  for (int distance = std::min(op.layout.lanes, 32) / 2; distance > 0; distance /= 2) {
    Value* other = b_.CreateIntrinsic(
        shuffle, {}, {b_.getInt32(0xffffffff), value, b_.getInt32(static_cast<std::uint32_t>(distance)), b_.getInt32(31)});
    value = emit_combine(b_, math_, *op.op.reduction, type, value, other);
  }
  return value;
}

Value* BlockEmitter::partial_address(const BlockOp& op, Value* row_slot, Value* warp) {
  const auto warps = static_cast<std::uint64_t>(op.layout.lanes / 32), groups = static_cast<std::uint64_t>(op.layout.groups);
  Value* group = b_.CreateZExt(position(op.layout).group, b_.getInt64Ty());
  Value* row = b_.CreateNSWAdd(b_.CreateNSWMul(row_slot, b_.getInt64(groups)), group);
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(warps)), b_.CreateZExt(warp, b_.getInt64Ty()));
  return shared_address(register_type(b_.getContext(), op.sum_type()), op.partials_offset, index);
}

/// All warps' results of a row, in the order of the warps, so that every thread gets the same value.
Value* BlockEmitter::combined_partials(const BlockOp& op, Value* row_slot) {
  const ElementType type = op.sum_type();
  Value* total = nullptr;
  for (int warp = 0; warp < op.layout.lanes / 32; ++warp) {
    Value* pointer = partial_address(op, row_slot, b_.getInt32(static_cast<std::uint32_t>(warp)));
    Value* value = b_.CreateAlignedLoad(register_type(b_.getContext(), type), pointer, llvm::Align(4));
    total = total == nullptr ? value : emit_combine(b_, math_, *op.op.reduction, type, total, value);
  }
  return total;
}

void BlockEmitter::finish_reduction(const BlockOp& op, int slot, Value* row_ok, Value* total) {
  if (plan_->in_registers(op.op.write)) return write_sums(op, {total}, {slot, 0});
  when(both(row_ok, owner(op)), [&] { write_sums(op, {total}, {slot, 0}); });
}

}  // namespace nestor::nvptx
