// Contracts by register blocks: tiles of both operands pass through shared memory, each thread keeps a block of sums.
// A thread's rows lie a group apart and its columns in vectors a row of lanes apart, as in every layout; so a warp's reads of
// A are broadcasts of few addresses, and those of B are neighbouring 16-byte vectors, or ks of columns that lie in as many banks.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// Ks of one step: A is read four ks at a time.
constexpr int kStep = 4;
/// Vectors of one copy that a thread has on their way at once.
constexpr int kCopyBatch = 8;
/// Asynchronous copies of one operand whose addresses a thread keeps from tile to tile.
constexpr int kAddresses = 4;
/// Elements that a warp copies at once where these lie along lines in memory: whole sectors of it, and banks of their own.
constexpr std::int64_t kSquare = 32, kSquareLines = 8;

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
  std::int64_t bytes = 0;                      ///< of one stage
  std::int64_t line_stride = 0, k_stride = 0;  ///< floats in shared memory
  std::int64_t group = 0, group_stride = 0;    ///< lines that lie next to each other, floats from such a group to the next
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
  copy.bytes = (is_a ? product.a_bytes(op.layout) : product.b_bytes(op.layout)) / product.stages;
  const bool by_line = is_a || product.b_by_column;
  copy.line_stride = is_a ? product.a_stride : by_line ? product.k_tile : 1;
  copy.k_stride = by_line ? 1 : product.b_stride;
  if (product.b_by_column && !is_a) {
    copy.group = op.layout.vector;
    copy.group_stride = product.b_stride;
  }
  return copy;
}

/// Where the tile of the current stage has an element, in floats.
Value* BlockEmitter::staged_place(const OperandCopy& copy, Value* line, Value* k) {
  const auto times = [&](Value* value, std::int64_t factor) { return b_.CreateNSWMul(value, b_.getInt64(u64(factor))); };
  Value* place = times(line, copy.line_stride);
  if (copy.group > 0) {
    Value* group = b_.CreateUDiv(line, b_.getInt64(u64(copy.group)));
    place = b_.CreateNSWAdd(place, times(group, copy.group_stride - copy.group * copy.line_stride));
  }
  return b_.CreateNSWAdd(place, times(k, copy.k_stride));
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
  } else if (product.stages > 1) {
    product_with_copies_ahead(op, sums, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, length, b_.getInt64(1)));
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

/// Tile t lies at stage t mod stages. It is asked for stages - 1 tiles before its steps, behind the barrier that ends those of the tile
/// which had its place. Each thread waits for its own copies, and the next barrier makes them everybody's.
void BlockEmitter::product_with_copies_ahead(const BlockOp& op, const Accumulators& sums, Value* k_end) {
  const ProductPlan& product = *op.product;
  std::vector<OperandCopy> copies;
  if (!product.a_direct) copies.push_back(operand_copy(op, true));
  if (!product.b_direct) copies.push_back(operand_copy(op, false));
  Value* filled = entry_alloca(b_.getInt64Ty(), "filled");
  const auto next = [&](Value* stage) {
    Value* after = b_.CreateNSWAdd(stage, b_.getInt64(1));
    return b_.CreateSelect(b_.CreateICmpEQ(after, b_.getInt64(u64(product.stages))), b_.getInt64(0), after);
  };
  const auto fill = [&](Value* k_start) {
    when(b_.CreateICmpSLT(k_start, k_end), [&] {
      for (const OperandCopy& copy : copies) start_copies(op, copy, k_start, b_.CreateLoad(b_.getInt64Ty(), filled));
    });
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, {});
    b_.CreateStore(next(b_.CreateLoad(b_.getInt64Ty(), filled)), filled);
  };
  b_.CreateStore(b_.getInt64(0), filled);
  Value* stage = entry_alloca(b_.getInt64Ty(), "stage");
  b_.CreateStore(b_.getInt64(0), stage);
  barrier();
  for (int tile = 0; tile + 1 < product.stages; ++tile) fill(b_.getInt64(u64(std::int64_t{tile} * product.k_tile)));
  loop(b_.getInt64(0), k_end, product.k_tile, [&](Value* k_start) {
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {},
                       {b_.getInt32(static_cast<std::uint32_t>(product.stages - 2))});
    barrier();
    fill(b_.CreateNSWAdd(k_start, b_.getInt64(u64(std::int64_t{product.stages - 1} * product.k_tile))));
    stage_ = b_.CreateLoad(b_.getInt64Ty(), stage);
    product_steps(op, sums, k_start, b_.getInt64(u64(product.k_tile)));
    b_.CreateStore(next(stage_), stage);
    stage_ = nullptr;
  });
}

/// Asynchronous copies of one operand's tile. What lies beyond the operand is filled with zeros.
void BlockEmitter::start_copies(const BlockOp& op, const OperandCopy& copy, Value* k_start, Value* stage) {
  const OpDim &k = op.op.dims[at(op.product->form.k)], &across = op.op.dims[at(copy.across)];
  const std::int64_t k_tile = op.product->k_tile, pieces = k_tile * copy.lines / copy.width;
  const bool all_lines = exact_extent(across) == copy.lines,
             all_ks = exact_extent(k).value_or(0) > 0 && *exact_extent(k) % k_tile == 0;
  Value *line_count = extent(across), *k_count = extent(k);
  Value* thread = b_.CreateZExt(own_thread_, b_.getInt64Ty());
  const std::int64_t per_line = (copy.along_k ? k_tile : copy.lines) / copy.width;
  // Elements by themselves that lie in memory along lines, and along ks in shared memory: a warp takes a square of them.
  const bool squares = copy.width == 1 && !copy.along_k && copy.k_stride == 1 && copy.lines % kSquareLines == 0;
  const auto number = [&](std::int64_t value) { return b_.getInt64(u64(value)); };
  const auto place_of = [&](Value* round) -> std::pair<Value*, Value*> {  // line and position along ks
    Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(round, number(plan_->threads)), thread);
    if (squares) {
      const std::int64_t along = copy.lines / kSquareLines;
      Value *square = b_.CreateUDiv(index, number(kSquare)), *inside = b_.CreateURem(index, number(kSquare));
      return {b_.CreateNSWAdd(b_.CreateNSWMul(b_.CreateURem(square, number(along)), number(kSquareLines)),
                              b_.CreateURem(inside, number(kSquareLines))),
              b_.CreateNSWAdd(b_.CreateNSWMul(b_.CreateUDiv(square, number(along)), number(kSquare / kSquareLines)),
                              b_.CreateUDiv(inside, number(kSquareLines)))};
    }
    Value *line = b_.CreateUDiv(index, number(per_line)), *position = b_.CreateURem(index, number(per_line));
    if (plan_->threads % per_line == 0) {  // each round is so many lines further
      line = b_.CreateNSWAdd(b_.CreateUDiv(thread, number(per_line)), b_.CreateNSWMul(round, number(plan_->threads / per_line)));
      position = b_.CreateURem(thread, number(per_line));
    }
    position = b_.CreateNSWMul(position, number(copy.width));
    return copy.along_k ? std::pair(line, position) : std::pair(position, line);
  };
  const auto piece = [&](Value* round) {
    const auto [line, position] = place_of(round);
    Value* k_index = b_.CreateNSWAdd(k_start, position);
    environment_[across.var] = b_.CreateNSWAdd(integer(across.lower), line);
    environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), k_index);
    Value* ok = all_lines ? nullptr : b_.CreateICmpSLT(line, line_count);
    if (!all_ks) ok = both(ok, b_.CreateICmpSLT(k_index, k_count));
    Value* target = b_.CreateNSWAdd(staged_place(copy, line, position), b_.CreateNSWMul(stage, number(copy.bytes / 4)));
    std::vector<Value*> operands{shared_address(b_.getFloatTy(), copy.offset, target), address(*copy.access)};
    const std::uint32_t bytes = copy.width == 4 ? 16 : 4;
    if (ok != nullptr) operands.push_back(b_.CreateSelect(ok, b_.getInt32(bytes), b_.getInt32(0)));
    const auto whole =
        bytes == 16 ? llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16 : llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4;
    const auto part =
        bytes == 16 ? llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16_s : llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4_s;
    b_.CreateIntrinsic(ok == nullptr ? whole : part, {}, operands);
  };
  const std::int64_t whole_rounds = pieces / plan_->threads, rest = pieces % plan_->threads;
  if (whole_rounds > kAddresses) {  // more of them would take the registers of sums
    loop(number(0), number(whole_rounds), 1, piece, whole_rounds % kAddresses == 0 ? kAddresses : kRolled);
  } else {
    for (std::int64_t round = 0; round < whole_rounds; ++round) piece(number(round));
  }
  if (rest > 0) when(b_.CreateICmpSLT(thread, number(rest)), [&] { piece(number(whole_rounds)); });
  environment_.erase(across.var);
  environment_.erase(k.var);
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
  Value* thread = b_.CreateZExt(own_thread_, b_.getInt64Ty());
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
        Value* place = copy.along_k ? staged_place(copy, line, position) : staged_place(copy, position, line);
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
  index = in_stage(index, product.a_bytes(op.layout) / product.stages);
  return load_floats(shared_address(b_.getFloatTy(), product.a_offset, index), kStep);
}

/// A place in the operand's tile of the current stage, in floats.
Value* BlockEmitter::in_stage(Value* index, std::int64_t stage_bytes) {
  return stage_ == nullptr ? index : b_.CreateNSWAdd(index, b_.CreateNSWMul(stage_, b_.getInt64(u64(stage_bytes / 4))));
}

/// B[k .. k + 3, this thread's column].
std::vector<Value*> BlockEmitter::read_column(const BlockOp& op, int chunk, int element, Value* k_offset) {
  const ProductPlan& product = *op.product;
  Value* group = b_.CreateNSWAdd(b_.CreateZExt(position(op.layout).lane, b_.getInt64Ty()),
                                 b_.getInt64(u64(std::int64_t{chunk} * op.layout.lanes)));
  Value* index = b_.CreateNSWAdd(b_.CreateNSWMul(group, b_.getInt64(u64(product.b_stride))), k_offset);
  index = b_.CreateNSWAdd(index, b_.getInt64(u64(std::int64_t{element} * product.k_tile)));
  index = in_stage(index, product.b_bytes(op.layout) / product.stages);
  return load_floats(shared_address(b_.getFloatTy(), product.b_offset, index), kStep);
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
  index = in_stage(index, product.b_bytes(op.layout) / product.stages);
  return load_floats(shared_address(b_.getFloatTy(), product.b_offset, index), op.layout.vector);
}

/// What terms read beside their operands, at k .. k + 3, as f32: the same for all rows and columns; 0 beyond the ks.
BlockEmitter::Loaded BlockEmitter::read_beside(const BlockOp& op, Value* k_start, Value* k_offset) {
  const ProductPlan& product = *op.product;
  const OpDim& k = op.op.dims[at(product.form.k)];
  const bool whole = exact_extent(k).value_or(0) > 0 && *exact_extent(k) % product.k_tile == 0;
  Loaded loaded;
  for (int read = 0; read < static_cast<int>(op.op.reads.size()); ++read) {
    if (read == product.form.a || read == product.form.b || !op.op.value.reads(read)) continue;
    const ElementType type = plan_->buffer(op.op.reads[at(read)].buffer).type;
    for (int q = 0; q < kStep; ++q) {
      Value* index = b_.CreateNSWAdd(k_start, b_.CreateNSWAdd(k_offset, b_.getInt64(u64(q))));
      environment_[k.var] = b_.CreateNSWAdd(integer(k.lower), index);
      Value* value = masked_element(op, read, {}, 0, whole ? b_.getTrue() : b_.CreateICmpSLT(index, extent(k)));
      loaded[read].push_back(convert({value}, type, ElementType::f32)[0]);
    }
  }
  return loaded;
}

void BlockEmitter::product_step(const BlockOp& op, const Accumulators& sums, Value* k_start, Value* k_offset) {
  const ProductPlan& product = *op.product;
  const OpDim& k = op.op.dims[at(product.form.k)];
  const bool guarded = op.op.guard.defined() && op.op.guard.uses(k.var);
  std::vector<std::vector<Value*>> a;
  a.reserve(static_cast<std::size_t>(product.row_slots));
  for (int row = 0; row < product.row_slots; ++row) a.push_back(read_a(op, row, k_start, k_offset));
  const ScalarExpr term = op.op.kind == OpKind::contract ? ScalarExpr() : wide_term(op.op.value);
  const Loaded beside = read_beside(op, k_start, k_offset);
  const auto added = [&](Value* x, Value* y, Value* old, int q) -> Value* {
    if (!term.defined()) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {b_.getFloatTy()}, {x, y, old});
    ScalarLeaves leaves;
    leaves.read = [&](int ordinal, Value*) {
      const auto found = beside.find(ordinal);
      return found != beside.end() ? found->second[at(q)] : ordinal == product.form.a ? x : y;
    };
    return emit_combine(b_, math_, *op.op.reduction, ElementType::f32, old, emit_scalar(b_, math_, term, leaves));
  };
  const auto add = [&](int row, int chunk, int e, int q, Value* b) {
    Value* storage = sums[at((row * product.chunks + chunk) * op.layout.vector + e)];
    Value* old = b_.CreateLoad(b_.getFloatTy(), storage);
    Value* sum = added(a[at(row)][at(q)], b, old, q);
    if (guarded) {
      set_product_row(op, row);
      set_product_column(op, chunk, e);
      environment_[k.var] =
          b_.CreateNSWAdd(integer(k.lower), b_.CreateNSWAdd(k_start, b_.CreateNSWAdd(k_offset, b_.getInt64(u64(q)))));
      sum = b_.CreateSelect(condition(op.op.guard), sum, old);
    }
    b_.CreateStore(sum, storage);
  };
  if (product.b_by_column) {
    for (int n = 0; n < product.chunks * op.layout.vector; ++n) {
      const int chunk = n / op.layout.vector, e = n % op.layout.vector;
      const std::vector<Value*> b = read_column(op, chunk, e, k_offset);
      for (int q = 0; q < kStep; ++q) {
        for (int row = 0; row < product.row_slots; ++row) add(row, chunk, e, q, b[at(q)]);
      }
    }
  } else {
    for (int q = 0; q < kStep; ++q) {
      for (int chunk = 0; chunk < product.chunks; ++chunk) {
        const std::vector<Value*> b = read_b(op, chunk, k_start, b_.CreateNSWAdd(k_offset, b_.getInt64(u64(q))));
        for (int row = 0; row < product.row_slots; ++row) {
          for (int e = 0; e < op.layout.vector; ++e) add(row, chunk, e, q, b[at(e)]);
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
