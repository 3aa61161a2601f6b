// Sums over rows of memory that the groups of a block divide among them: each thread adds up its share of the points of its own
// columns, then the groups of a warp combine by shuffles, and warps through shared memory. Sums whose only terms data names.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {

using llvm::Value;

namespace {

std::vector<Value*> part(const std::vector<Value*>& values, int first, int count) {
  return {values.begin() + first, values.begin() + first + count};
}

}  // namespace

void BlockEmitter::emit_divided_sum(const BlockOp& op) {
  const std::int64_t chunk = static_cast<std::int64_t>(op.layout.lanes) * op.layout.vector;
  const std::int64_t chunks = std::max<std::int64_t>(ceil_div(op.column_bound().value_or(1), chunk), 1);
  const std::vector<Value*> sums = new_sums(op, static_cast<int>(chunks) * op.layout.vector);
  for_serial(
      op, [](const OpDim& dim) { return !dim.reduced; },
      [&] {
        add_own_points(op, sums);
        combine_in_warp(op, sums);
        if (op.group_partials() > 1) {
          publish_sums(op, sums);
          barrier();
        }
        when(plan_->in_registers(op.op.write) ? nullptr : owner(op), [&] {
          for_columns(
              op, [&](int width, int slot) { write_sums(op, combined_groups(op, part(sums, slot, width), width), {0, slot}); });
        });
      });
}

void BlockEmitter::add_own_points(const BlockOp& op, const std::vector<Value*>& sums) {
  for_columns(op, [&](int width, int slot) {
    for_serial(
        op, [](const OpDim& dim) { return dim.reduced; }, [&] { accumulate(op, part(sums, slot, width), width, {0, slot}); });
  });
}

/// Lanes of one column lie `lanes` threads apart. All threads take part, whether their columns exist or not.
void BlockEmitter::combine_in_warp(const BlockOp& op, const std::vector<Value*>& sums) {
  const ElementType type = op.sum_type();
  for (int distance = op.layout.lanes; distance < 32; distance *= 2) {
    for (Value* sum : sums) {
      Value* own = read_sums(op, {sum})[0];
      b_.CreateStore(emit_combine(b_, math_, *op.op.reduction, type, own, shuffled(own, type, distance)), sum);
    }
  }
}

/// Where the sums of a warp (or group, if it is larger) have the current column.
Value* BlockEmitter::group_partial(const BlockOp& op, Value* number) {
  const OpDim& dim = op.op.dims[op.column];
  const auto stride = static_cast<std::uint64_t>(round_up(op.column_bound().value_or(1), kPartialsPad));
  Value* column = b_.CreateNSWSub(environment_.at(dim.var), integer(dim.lower));
  Value* before = b_.CreateNSWMul(b_.CreateZExt(number, b_.getInt64Ty()), b_.getInt64(stride));
  return shared_address(b_.getFloatTy(), op.partials_offset, b_.CreateNSWAdd(before, column));
}

void BlockEmitter::publish_sums(const BlockOp& op, const std::vector<Value*>& sums) {
  const bool in_warps = op.layout.lanes <= 32;
  Value* number = in_warps ? b_.CreateUDiv(own_thread_, b_.getInt32(32)) : position(op.layout).group;
  Value* first = in_warps ? b_.CreateICmpULT(b_.CreateURem(own_thread_, b_.getInt32(32)),
                                             b_.getInt32(static_cast<std::uint32_t>(op.layout.lanes)))
                          : nullptr;
  when(first, [&] {
    for_columns(op, [&](int width, int slot) {
      std::vector<Value*> values = read_sums(op, part(sums, slot, width));
      for (Value*& value : values) value = b_.CreateBitCast(value, b_.getFloatTy());
      store_floats(group_partial(op, number), values);
    });
  });
}

/// Every warp's sums, added in one order, so that all threads get the same values.
std::vector<Value*> BlockEmitter::combined_groups(const BlockOp& op, const std::vector<Value*>& own, int width) {
  if (op.group_partials() == 1) return read_sums(op, own);
  const ElementType type = op.sum_type();
  const std::vector<Value*> totals = new_sums(op, width);
  loop(b_.getInt32(0), b_.getInt32(static_cast<std::uint32_t>(op.group_partials())), 1, [&](Value* number) {
    const std::vector<Value*> values = load_floats(group_partial(op, number), width), old = read_sums(op, totals);
    for (std::size_t e = 0; e < totals.size(); ++e) {
      Value* value = b_.CreateBitCast(values[e], register_type(b_.getContext(), type));
      b_.CreateStore(emit_combine(b_, math_, *op.op.reduction, type, old[e], value), totals[e]);
    }
  });
  return read_sums(op, totals);
}

/// Where along the chosen dim the data says that a term, or its sum, is: there need be no such place.
Value* BlockEmitter::chosen_place(const BlockOp& op, const ChosenTerm& chosen, Slot slot) {
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(chosen.dim)];
  const IntExpr& index = op.op.indices[static_cast<std::size_t>(chosen.index)];
  environment_[dim.var] = b_.getInt64(0);
  Value* first = integer(index);
  Value* place = b_.CreateSExt(point_values(op, chosen.place, 1, slot)[0], b_.getInt64Ty());
  return affine_of(index).terms.at(dim.var) > 0 ? b_.CreateNSWSub(place, first) : b_.CreateNSWSub(first, place);
}

/// Each element's term stands where its own data says; elsewhere is none.
void BlockEmitter::add_chosen_terms(const BlockOp& op, const std::vector<Value*>& sums, int width, Slot slot) {
  const ChosenTerm& chosen = *op.chosen;
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(chosen.dim)];
  Value *lower = integer(dim.lower), *upper = integer(dim.upper);
  // Without terms the place need not be there to be read.
  Value* any = exact_extent(dim).value_or(0) > 0 ? nullptr : b_.CreateICmpSLT(lower, upper);
  for (int e = 0; e < width; ++e) {
    const Slot own{slot.row, slot.column + e};
    at_element(op, e, [&] {
      when(any, [&] {
        Value* at = chosen_place(op, chosen, own);
        when(b_.CreateAnd(b_.CreateICmpSGE(at, lower), b_.CreateICmpSLT(at, upper)), [&] {
          environment_[dim.var] = at;
          for_serial(
              op, [&](const OpDim& other) { return other.reduced && &other != &dim; },
              [&] { accumulate(op, {sums[static_cast<std::size_t>(e)]}, 1, own); });
        });
      });
    });
  }
}

}  // namespace nestor::nvptx
