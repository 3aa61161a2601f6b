// Contracts by register blocks: tiles of both operands pass through shared memory, each thread keeps a block of sums.
// A thread's rows lie a group apart and its columns in vectors a row of lanes apart, as in every layout; so a warp's reads of
// A are broadcasts of few addresses, and those of B are neighbouring 16-byte vectors.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// Ks of one step: A is read four ks at a time.
constexpr int kStep = 4;
/// Vectors of one copy that a thread has on their way at once.
constexpr int kCopyBatch = 8;

std::uint64_t u64(std::int64_t value) { return static_cast<std::uint64_t>(value); }
std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

/// The copy of one operand's k tile into shared memory.
struct BlockEmitter::OperandCopy {
  const TileAccess* access = nullptr;
  int across = -1;         ///< the dim that is not k
  std::int64_t lines = 0;  ///< extent of the tile across
  bool along_k = false;    ///< vectors and neighbouring threads run along k
  int width = 1;
  std::int64_t offset = 0;
  std::int64_t line_stride = 0, k_stride = 0;  ///< floats in shared memory
};

BlockEmitter::OperandCopy BlockEmitter::operand_copy(const BlockOp& op, bool is_a) {
  const ProductPlan& product = *op.product;
  OperandCopy copy;
  copy.access = &op.op.reads[at(is_a ? product.form.a : product.form.b)];
  copy.across = is_a ? product.form.row : product.form.column;
  copy.lines = is_a ? std::int64_t{product.row_slots} * op.layout.groups
                    : std::int64_t{product.chunks} * op.layout.lanes * op.layout.vector;
  copy.along_k = is_a ? product.a_copy_along_k : product.b_copy_along_k;
  copy.width = is_a ? product.a_copy_width : product.b_copy_width;
  copy.offset = is_a ? product.a_offset : product.b_offset;
  copy.line_stride = is_a ? product.a_stride : 1;
  copy.k_stride = is_a ? 1 : product.b_stride;
  return copy;
}

void BlockEmitter::emit_product(const BlockOp& op) {
  const ProductPlan& product = *op.product;
  const OpDim& k = op.op.dims[at(product.form.k)];
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    if (op.roles[d] == DimRole::serial && op.op.dims[d].var != k.var)
      environment_[op.op.dims[d].var] = integer(op.op.dims[d].lower);
  }
  Accumulators sums;
  for (int n = 0; n < product.row_slots * product.chunks * op.layout.vector; ++n) {
    sums.push_back(entry_alloca(b_.getFloatTy(), "sum"));
    b_.CreateStore(llvm::ConstantFP::get(b_.getFloatTy(), 0.0), sums.back());
  }
  Value* length = extent(k);
  if (product.a_direct && product.b_direct) {
    product_steps(op, sums, b_.getInt64(0), length);
  } else {
    // At least one round: the barriers of an empty product still order what is around it.
    Value* rounded = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, length, b_.getInt64(1));
    loop(b_.getInt64(0), rounded, product.k_tile, [&](Value* k_start) {
      barrier();
      if (!product.a_direct) copy_operand(op, operand_copy(op, true), k_start);
      if (!product.b_direct) copy_operand(op, operand_copy(op, false), k_start);
      barrier();
      product_steps(op, sums, k_start, b_.getInt64(u64(product.k_tile)));
    });
  }
  write_product(op, sums);
}

void BlockEmitter::copy_operand(const BlockOp& op, const OperandCopy& copy, Value* k_start) {
  const OpDim &k = op.op.dims[at(op.product->form.k)], &across = op.op.dims[at(copy.across)];
  const std::int64_t k_tile = op.product->k_tile;
  const std::int64_t per_line = (copy.along_k ? k_tile : copy.lines) / copy.width;
  const std::int64_t total = per_line * (copy.along_k ? copy.lines : k_tile);
  const std::int64_t rounds = ceil_div(total, plan_->threads);
  const ElementType type = plan_->buffer(copy.access->buffer).type;
  const bool all_lines = exact_extent(across) == copy.lines,
             all_ks = exact_extent(k).value_or(0) > 0 && *exact_extent(k) % k_tile == 0;
  Value *line_count = extent(across), *k_count = extent(k);
  Value* thread = b_.CreateZExt(thread_, b_.getInt64Ty());
  for (std::int64_t first = 0; first < rounds; first += kCopyBatch) {
    std::vector<std::pair<Value*, std::vector<Value*>>> batch;  // index, values
    const std::int64_t end = std::min(rounds, first + kCopyBatch);
    for (std::int64_t round = first; round < end; ++round) {
      Value* index = b_.CreateNSWAdd(thread, b_.getInt64(u64(round * plan_->threads)));
      Value* line = b_.CreateUDiv(index, b_.getInt64(u64(per_line)));
      Value* position = b_.CreateNSWMul(b_.CreateURem(index, b_.getInt64(u64(per_line))), b_.getInt64(u64(copy.width)));
      Value *line_index = copy.along_k ? line : position, *k_index = b_.CreateNSWAdd(k_start, copy.along_k ? position : line);
      environment_[across.var] = b_.CreateNSWAdd(integer(across.lower), line_index);
      environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), k_index);
      Value* ok = (round + 1) * plan_->threads <= total ? nullptr : b_.CreateICmpSLT(index, b_.getInt64(u64(total)));
      if (!all_lines) ok = both(ok, b_.CreateICmpSLT(line_index, line_count));
      if (!all_ks) ok = both(ok, b_.CreateICmpSLT(k_index, k_count));
      if (op.op.guard.defined()) ok = both(ok, inside_tensor(*copy.access));
      std::vector<Value*> values;
      auto* before = b_.GetInsertBlock();
      when(ok, [&] {
        values = copy.width > 1 ? load_vector(*copy.access, copy.width) : std::vector<Value*>{load_element(*copy.access)};
        values = convert(values, type, ElementType::f32);
      });
      if (ok != nullptr && b_.GetInsertBlock() != before) {
        auto* loaded = llvm::cast<llvm::Instruction>(values.back())->getParent();
        for (Value*& value : values) {
          llvm::PHINode* phi = b_.CreatePHI(b_.getFloatTy(), 2);
          phi->addIncoming(llvm::ConstantFP::get(b_.getFloatTy(), 0.0), before);
          phi->addIncoming(value, loaded);
          value = phi;
        }
      }
      batch.emplace_back(index, std::move(values));
    }
    for (std::int64_t round = first; round < end; ++round) {
      auto& [index, values] = batch[round - first];
      when((round + 1) * plan_->threads <= total ? nullptr : b_.CreateICmpSLT(index, b_.getInt64(u64(total))), [&] {
        Value* line = b_.CreateUDiv(index, b_.getInt64(u64(per_line)));
        Value* position = b_.CreateNSWMul(b_.CreateURem(index, b_.getInt64(u64(per_line))), b_.getInt64(u64(copy.width)));
        const std::int64_t along_stride = copy.along_k ? copy.k_stride : copy.line_stride;
        const std::int64_t other_stride = copy.along_k ? copy.line_stride : copy.k_stride;
        Value* place = b_.CreateNSWAdd(b_.CreateNSWMul(line, b_.getInt64(u64(other_stride))),
                                       b_.CreateNSWMul(position, b_.getInt64(u64(along_stride))));
        if (along_stride == 1) return store_floats(shared_address(b_.getFloatTy(), copy.offset, place), values);
        for (std::size_t e = 0; e < values.size(); ++e) {
          Value* target = b_.CreateNSWAdd(place, b_.getInt64(u64(static_cast<std::int64_t>(e) * along_stride)));
          store_floats(shared_address(b_.getFloatTy(), copy.offset, target), {values[e]});
        }
      });
    }
  }
  environment_.erase(across.var);
  environment_.erase(k.var);
}

/// Points outside of the op's guard may lie outside of the tensor.
Value* BlockEmitter::inside_tensor(const TileAccess& access) {
  Value* inside = nullptr;
  for (std::size_t k = 0; k < access.index.size(); ++k) {
    Value* index = integer(access.index[k]);
    inside = both(inside, b_.CreateICmpULT(index, integer(plan_->buffer(access.buffer).extents[k])));  // negative ones are huge
  }
  return inside;
}

void BlockEmitter::product_steps(const BlockOp& op, const Accumulators& sums, Value* k_start, Value* k_count) {
  loop(b_.getInt64(0), k_count, kStep, [&](Value* k_offset) { product_step(op, sums, k_start, k_offset); });
}

void BlockEmitter::set_product_row(const BlockOp& op, int row_slot) {
  const OpDim& dim = op.op.dims[at(op.product->form.row)];
  Value* group = b_.CreateZExt(position(op.layout).group, b_.getInt64Ty());
  environment_[dim.var] =
      b_.CreateNSWAdd(integer(dim.lower), b_.CreateNSWAdd(group, b_.getInt64(u64(std::int64_t{row_slot} * op.layout.groups))));
}

void BlockEmitter::set_product_column(const BlockOp& op, int chunk, int element) {
  const OpDim& dim = op.op.dims[at(op.product->form.column)];
  Value* lane = b_.CreateZExt(position(op.layout).lane, b_.getInt64Ty());
  Value* first = b_.CreateNSWMul(lane, b_.getInt64(u64(op.layout.vector)));
  const std::int64_t start = std::int64_t{chunk} * op.layout.lanes * op.layout.vector + element;
  environment_[dim.var] = b_.CreateNSWAdd(integer(dim.lower), b_.CreateNSWAdd(first, b_.getInt64(u64(start))));
}

/// A[this thread's row of the slot, k .. k + 3].
std::vector<Value*> BlockEmitter::read_a(const BlockOp& op, int row_slot, Value* k_start, Value* k_offset) {
  const ProductPlan& product = *op.product;
  const OpDim& k = op.op.dims[at(product.form.k)];
  if (product.a_direct) {
    set_product_row(op, row_slot);
    environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), b_.CreateNSWAdd(k_start, k_offset));
    return load_floats(address(op.op.reads[at(product.form.a)]), kStep);
  }
  Value* row = b_.CreateNSWAdd(b_.CreateZExt(position(op.layout).group, b_.getInt64Ty()),
                               b_.getInt64(u64(std::int64_t{row_slot} * op.layout.groups)));
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(u64(product.a_stride))), k_offset);
  return load_floats(shared_address(b_.getFloatTy(), product.a_offset, index), kStep);
}

/// B[k, this thread's vector of columns of the chunk].
std::vector<Value*> BlockEmitter::read_b(const BlockOp& op, int chunk, Value* k_start, Value* k_offset) {
  const ProductPlan& product = *op.product;
  const OpDim& k = op.op.dims[at(product.form.k)];
  if (product.b_direct) {
    set_product_column(op, chunk, 0);
    environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), b_.CreateNSWAdd(k_start, k_offset));
    return load_floats(address(op.op.reads[at(product.form.b)]), op.layout.vector);
  }
  Value* column = b_.CreateNSWAdd(b_.CreateZExt(position(op.layout).lane, b_.getInt64Ty()),
                                  b_.getInt64(u64(std::int64_t{chunk} * op.layout.lanes)));
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(k_offset, b_.getInt64(u64(product.b_stride))),
                                 b_.CreateNSWMul(column, b_.getInt64(u64(op.layout.vector))));
  return load_floats(shared_address(b_.getFloatTy(), product.b_offset, index), op.layout.vector);
}

void BlockEmitter::product_step(const BlockOp& op, const Accumulators& sums, Value* k_start, Value* k_offset) {
  const ProductPlan& product = *op.product;
  const OpDim& k = op.op.dims[at(product.form.k)];
  const bool guarded = op.op.guard.defined() && op.op.guard.uses(k.var);
  std::vector<std::vector<Value*>> a;
  a.reserve(static_cast<std::size_t>(product.row_slots));
  for (int row = 0; row < product.row_slots; ++row) a.push_back(read_a(op, row, k_start, k_offset));
  for (int q = 0; q < kStep; ++q) {
    Value* offset = b_.CreateNSWAdd(k_offset, b_.getInt64(u64(q)));
    if (guarded) environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), b_.CreateNSWAdd(k_start, offset));
    for (int chunk = 0; chunk < product.chunks; ++chunk) {
      const std::vector<Value*> b = read_b(op, chunk, k_start, offset);
      for (int row = 0; row < product.row_slots; ++row) {
        for (int e = 0; e < op.layout.vector; ++e) {
          Value* storage = sums[at((row * product.chunks + chunk) * op.layout.vector + e)];
          Value* old = b_.CreateLoad(b_.getFloatTy(), storage);
          Value* sum = b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getFloatTy()}, {a[at(row)][at(q)], b[at(e)], old});
          if (guarded) {
            set_product_row(op, row);
            set_product_column(op, chunk, e);
            environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), b_.CreateNSWAdd(k_start, offset));
            sum = b_.CreateSelect(condition(op.op.guard), sum, old);
          }
          b_.CreateStore(sum, storage);
        }
      }
    }
  }
  environment_.erase(k.var);
}

void BlockEmitter::write_product(const BlockOp& op, const Accumulators& sums) {
  const ProductPlan& product = *op.product;
  const OpDim &row_dim = op.op.dims[at(product.form.row)], &column_dim = op.op.dims[at(product.form.column)];
  // Sums that start here are stored where the guard holds for no k as well.
  const bool empty_too = op.op.initialize && op.op.guard.defined() && !op.op.guard.uses(op.op.dims[at(product.form.k)].var);
  const int vector = op.layout.vector, width = op.vectors ? vector : 1;
  const auto exact_rows = exact_extent(row_dim), exact_columns = exact_extent(column_dim);
  for (int row = 0; row < product.row_slots; ++row) {
    set_product_row(op, row);
    Value* row_index = b_.CreateNSWSub(environment_[row_dim.var], integer(row_dim.lower));
    const bool inside = exact_rows && std::int64_t{row + 1} * op.layout.groups <= *exact_rows;
    Value* row_ok = inside ? nullptr : b_.CreateICmpSLT(row_index, extent(row_dim));
    when(row_ok, [&] {
      for (int chunk = 0; chunk < product.chunks; ++chunk) {
        for (int e = 0; e < vector; e += width) {
          set_product_column(op, chunk, e);
          Value* index = b_.CreateNSWSub(environment_[column_dim.var], integer(column_dim.lower));
          const bool whole = exact_columns && std::int64_t{chunk + 1} * op.layout.lanes * vector <= *exact_columns;
          when(whole ? nullptr : b_.CreateICmpSLT(index, extent(column_dim)), [&] {
            std::vector<Value*> values;
            values.reserve(static_cast<std::size_t>(width));
            for (int n = 0; n < width; ++n)
              values.push_back(b_.CreateLoad(b_.getFloatTy(), sums[at((row * product.chunks + chunk) * vector + e + n)]));
            const Slot slot{row, chunk * vector + e};
            if (!empty_too) return write_sums(op, values, slot);
            const auto nothing = std::vector<Value*>(values.size(), llvm::ConstantFP::get(b_.getFloatTy(), 0.0));
            when_else(condition(op.op.guard), [&] { write_sums(op, values, slot); }, [&] { write_sums(op, nothing, slot); });
          });
        }
      }
    });
  }
}

}  // namespace nestor::nvptx
