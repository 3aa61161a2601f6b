// Ops point by point: each thread runs over its rows, its chunks of columns, and the sequential dims.
#include "codegen/gpu/simt/emit/block_emitter.h"
#include "codegen/tile/analysis/conditions.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// Points of a sum that a thread loads at once.
constexpr int kSumUnroll = 4;

}  // namespace

void BlockEmitter::emit_op(const BlockOp& op) {
  if (op.joins >= 0 && !op.reduces_columns()) return;  // emitted where its pass begins
  if (op.barrier_before) barrier();
  const auto outer = environment_;
  if (op.product) {
    emit_product(op);
  } else if (op.prefix) {
    emit_prefix(op);
  } else if (op.reduces_columns()) {
    emit_column_reduction(op);
  } else if (op.crosses_groups()) {
    emit_divided_sum(op);
  } else if (op.scattered) {
    emit_scattered(op);
  } else if (!op.window.empty()) {
    emit_windows(op);
  } else if (const std::set<int> shared = read_by_all_rows(*plan_, op); !shared.empty()) {
    emit_rows_at_once(op, shared);
  } else {
    for_own_elements(op, [&](int width, Slot slot) { emit_unit(op, width, slot); });
  }
  environment_ = outer;
}

/// Calls `body` for every row and vector of columns of the thread that it stores.
void BlockEmitter::for_own_elements(const BlockOp& op, const std::function<void(int width, Slot slot)>& body) {
  const bool to_registers = plan_->in_registers(op.op.write);
  for_rows(op, false, [&](int slot, Value*, Value* row_ok) {
    when(to_registers ? row_ok : both(row_ok, owner(op)),
         [&] { for_columns(op, [&](int width, int column_slot) { body(width, {slot, column_slot}); }); });
  });
}

/// Of the threads that hold the same element, the one that stores it; null when there is only one.
Value* BlockEmitter::owner(const BlockOp& op) {
  const Position& at = position(op.layout);
  Value* result = nullptr;
  const bool replicated = op.column < 0 || op.op.dims[op.column].reduced;
  if (replicated && op.layout.lanes > 1) result = b_.CreateICmpEQ(at.lane, b_.getInt32(0));
  if (op.rows.empty() && op.layout.groups > 1) result = both(result, b_.CreateICmpEQ(at.group, b_.getInt32(0)));
  return result;
}

void BlockEmitter::for_rows(const BlockOp& op, bool at_least_once, const std::function<void(int, Value*, Value*)>& body) {
  if (op.rows.empty()) return body(0, b_.getInt64(0), nullptr);
  const auto bound = op.row_bound();
  if (op.unroll_rows || (bound && op.layout.row_slots(*bound) <= 1)) {
    const std::int64_t slots = std::max<std::int64_t>(op.layout.row_slots(bound.value_or(1)), 1);
    for (int slot = 0; slot < slots; ++slot) {
      Value* number = b_.getInt64(static_cast<std::uint64_t>(slot));
      Value* row_ok = set_row(op, slot, number);
      body(slot, number, row_ok);
    }
    return;
  }
  Value* slots = row_slots(op);
  if (at_least_once) slots = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, slots, b_.getInt64(1));
  loop(b_.getInt64(0), slots, 1, [&](Value* slot) { body(0, slot, set_row(op, -1, slot)); });
}

/// Rows of a thread, those that do not exist included.
Value* BlockEmitter::row_slots(const BlockOp& op) {
  const bool bound = op.row_bound().has_value();
  const std::int64_t at_once = std::int64_t{op.layout.groups} * op.layout.run;
  Value* rows = b_.getInt64(1);
  for (int d : op.rows) {
    const OpDim& dim = op.op.dims[d];
    Value* length = bound ? b_.getInt64(static_cast<std::uint64_t>(*extent_bound(dim))) : extent(dim);
    rows = b_.CreateNSWMul(rows, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, length, b_.getInt64(0)));
  }
  Value* runs = b_.CreateUDiv(b_.CreateNSWAdd(rows, b_.getInt64(static_cast<std::uint64_t>(at_once - 1))),
                              b_.getInt64(static_cast<std::uint64_t>(at_once)));
  return op.layout.run == 1 ? runs : b_.CreateNSWMul(runs, b_.getInt64(static_cast<std::uint64_t>(op.layout.run)));
}

/// Sets the row dims for a slot (`slot` < 0: known at run time only). Returns whether this thread's row exists; null: always.
Value* BlockEmitter::set_row(const BlockOp& op, int slot, Value* slot_value) {
  const std::int64_t groups = op.layout.groups;
  const auto bound = op.row_bound();
  Value* group = b_.CreateZExt(position(op.layout).group, b_.getInt64Ty());
  const std::int64_t run = op.layout.run, at_once = groups * run;
  const auto number = [&](std::int64_t value) { return b_.getInt64(static_cast<std::uint64_t>(value)); };
  Value* of_run = run == 1 ? slot_value : b_.CreateUDiv(slot_value, number(run));
  Value* row = b_.CreateNSWAdd(b_.CreateNSWMul(of_run, number(groups)), group);
  if (run > 1) row = b_.CreateNSWAdd(b_.CreateNSWMul(row, number(run)), b_.CreateURem(slot_value, number(run)));
  Value* row_ok = nullptr;
  bool exact = bound.has_value();
  for (int d : op.rows) exact = exact && exact_extent(op.op.dims[d]).has_value();
  const bool within = bound && (slot >= 0 ? (slot / run + 1) * at_once <= *bound : *bound % at_once == 0);
  Value* rest = row;
  for (std::size_t k = op.rows.size(); k-- > 0;) {
    const OpDim& dim = op.op.dims[op.rows[k]];
    Value* length = bound ? b_.getInt64(static_cast<std::uint64_t>(*extent_bound(dim))) : extent(dim);
    if (!bound && k > 0) {  // an empty dim must not divide by zero; its rows do not exist
      row_ok = both(row_ok, b_.CreateICmpSGT(length, b_.getInt64(0)));
      length = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, length, b_.getInt64(1));
    }
    Value* index = k == 0 ? rest : b_.CreateURem(rest, length);
    if (k > 0) rest = b_.CreateUDiv(rest, length);
    if (k == 0 && !(exact && within)) row_ok = both(row_ok, b_.CreateICmpSLT(index, bound && exact ? length : extent(dim)));
    if (k > 0 && bound && !exact_extent(dim)) row_ok = both(row_ok, b_.CreateICmpSLT(index, extent(dim)));
    environment_[dim.var] = b_.CreateNSWAdd(integer(dim.lower), index);
  }
  return row_ok;
}

void BlockEmitter::for_columns(const BlockOp& op, const std::function<void(int, int)>& body) {
  if (op.column < 0) return body(1, 0);
  const OpDim& dim = op.op.dims[op.column];
  const auto bound = extent_bound(dim), exact = exact_extent(dim);
  const std::int64_t chunk = static_cast<std::int64_t>(op.layout.lanes) * op.layout.vector;
  Value* lane = b_.CreateZExt(position(op.layout).lane, b_.getInt64Ty());
  Value* start = b_.CreateNSWMul(lane, b_.getInt64(static_cast<std::uint64_t>(op.layout.vector)));
  if (op.unroll_columns || (bound && *bound <= chunk)) {
    const std::int64_t chunks = std::max<std::int64_t>(ceil_div(bound.value_or(1), chunk), 1);
    for (std::int64_t k = 0; k < chunks; ++k) {
      Value* first = b_.CreateNSWAdd(start, b_.getInt64(static_cast<std::uint64_t>(k * chunk)));
      column_chunk(op, first, exact && (k + 1) * chunk <= *exact, static_cast<int>(k) * op.layout.vector, body);
    }
    return;
  }
  Value* length = extent(dim);
  loop(b_.getInt64(0), length, chunk,
       [&](Value* base) { column_chunk(op, b_.CreateNSWAdd(base, start), exact && *exact % chunk == 0, 0, body); });
}

/// One thread's vector of columns from `first` on: at once, or element by element.
void BlockEmitter::column_chunk(const BlockOp& op, Value* first, bool whole, int column_slot,
                                const std::function<void(int, int)>& body) {
  const OpDim& dim = op.op.dims[op.column];
  const int width = op.vectors ? op.layout.vector : 1;
  for (int e = 0; e < op.layout.vector; e += width) {
    Value* index = e == 0 ? first : b_.CreateNSWAdd(first, b_.getInt64(static_cast<std::uint64_t>(e)));
    when(whole ? nullptr : b_.CreateICmpSLT(index, extent(dim)), [&] {
      environment_[dim.var] = b_.CreateNSWAdd(integer(dim.lower), index);
      body(width, column_slot + e);
    });
  }
}

void BlockEmitter::for_serial(const BlockOp& op, const std::function<bool(const OpDim&)>& pick, const Body& body,
                              std::size_t from) {
  const auto picked = [&](std::size_t d) { return op.roles[d] == DimRole::serial && pick(op.op.dims[d]); };
  for (std::size_t d = from; d < op.op.dims.size(); ++d) {
    const OpDim& dim = op.op.dims[d];
    if (!picked(d)) continue;
    const auto inner = [&](Value* index) {
      environment_[dim.var] = index;
      for_serial(op, pick, body, d + 1);
    };
    if (single_valued(dim)) return inner(integer(dim.lower));
    bool innermost = op.op.reduction && !op.product;
    for (std::size_t after = d + 1; after < op.op.dims.size(); ++after)
      innermost = innermost && (!picked(after) || single_valued(op.op.dims[after]));
    const int unroll = !op.window.empty() ? (short_code_ ? kRolled : 1) : innermost ? kSumUnroll : 1;
    if (static_cast<int>(d) == op.divided && op.divides()) {
      Value* group = b_.CreateZExt(position(op.layout).group, b_.getInt64Ty());
      return loop(b_.CreateNSWAdd(integer(dim.lower), group), integer(dim.upper), op.layout.groups, inner, unroll);
    }
    return loop(integer(dim.lower), integer(dim.upper), 1, inner, unroll);
  }
  body();
}

/// Where this thread finds a piece of the work tile of trip `trip`: neighbouring threads' pieces lie next to each other.
Value* BlockEmitter::piece_address(int buffer, Value* trip, std::int64_t piece) {
  const Placement& place = plan_->placements.at(buffer);
  const std::int64_t slot_bytes = pieces_of(*plan_, buffer) * place.piece * plan_->threads;
  Value* own = b_.CreateNSWMul(b_.CreateZExt(own_thread_, b_.getInt64Ty()), b_.getInt64(static_cast<std::uint64_t>(place.piece)));
  if (place.stages > 1) {
    Value* before = b_.CreateNSWSub(trip, b_.getInt64(1));
    Value* slot = b_.CreateURem(before, b_.getInt64(static_cast<std::uint64_t>(place.stages)));
    own = b_.CreateNSWAdd(own, b_.CreateNSWMul(slot, b_.getInt64(static_cast<std::uint64_t>(slot_bytes))));
  }
  return shared_address(b_.getInt8Ty(), place.stages_offset + piece * place.piece * plan_->threads, own);
}

/// Asynchronous copies for a work tile to come. A thread copies what it will read itself, so that no other thread has to know. Pieces are
/// neighbours where the read is a vector, and elements by themselves elsewhere.
void BlockEmitter::emit_ahead(const BlockOp& op, int width, Slot slot) {
  const int buffer = op.op.write.buffer;
  const Placement& place = *plan_->placement(buffer);
  const int first = (place.by_row ? slot.row : 0) * place.column_slots + (place.by_column ? slot.column : 0);
  const auto bytes = static_cast<int>(size_in_bytes(plan_->buffer(buffer).type));
  const bool dense = op.vectors && op.read_vectors[0];
  Value* from = dense ? address(op.op.reads[0]) : nullptr;
  Value* trip = b_.CreateNSWAdd(environment_.at(kTrip), b_.getInt64(static_cast<std::uint64_t>(op.ahead)));
  const auto copy =
      place.piece == 16 ? llvm::Intrinsic::nvvm_cp_async_cg_shared_global_16 : llvm::Intrinsic::nvvm_cp_async_ca_shared_global_4;
  for (int done = 0; done < width * bytes; done += place.piece) {
    Value* source = nullptr;
    if (dense) {
      source = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), from, static_cast<std::uint64_t>(done));
    } else {
      at_element(op, done / bytes, [&] { source = address(op.op.reads[0]); });
    }
    b_.CreateIntrinsic(copy, {}, {piece_address(buffer, trip, (first * bytes + done) / place.piece), source});
  }
}

/// The next work tile's pieces into registers. Groups of copies still under way are those of later work tiles.
void BlockEmitter::advance(int buffer) {
  const ElementType type = plan_->buffer(buffer).type;
  const Placement& place = plan_->placements.at(buffer);
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_wait_group, {}, {b_.getInt32(static_cast<std::uint32_t>(place.stages - 1))});
  Value* trip = b_.CreateNSWAdd(environment_.at(kTrip), b_.getInt64(1));
  int element = 0;
  for (std::int64_t piece = 0; piece < pieces_of(*plan_, buffer); ++piece) {
    for (Value* value : load_piece(piece_address(buffer, trip, piece), type, place.piece)) {
      Value*& storage = registers_[{buffer, element++}];
      if (storage == nullptr) storage = entry_alloca(type_of(plan_->buffer(buffer)), plan_->buffer(buffer).name);
      b_.CreateStore(value, storage);
    }
  }
}

void BlockEmitter::emit_unit(const BlockOp& op, int width, Slot slot) {
  if (op.ahead > 0) return for_serial(op, [](const OpDim&) { return true; }, [&] { emit_ahead(op, width, slot); });
  if (op.op.reduction && op.op.kind != OpKind::points) return emit_accumulation(op, width, slot);
  if (op.own_sums) return emit_own_sums(op, slot);
  if (op.op.reduction) return emit_point_reduction(op, slot);
  if (op.carried >= 0) return emit_recurrence(op, slot);
  for_serial(
      op, [](const OpDim&) { return true; },
      [&] {
        for (const BlockOp* each : joined_with(op)) {
          name_dims(op, *each);
          emit_points(*each, width, slot);
        }
      });
}

/// The value to store; a cast to the buffer's own 16-bit type is left to the store, which converts in pairs.
ScalarExpr BlockEmitter::stored_value(const BlockOp& op) const {
  const ElementType type = plan_->buffer(op.op.write.buffer).type;
  const ScalarExpr& value = op.op.value;
  const bool narrows = type == ElementType::f16 || type == ElementType::bf16;
  if (narrows && value.op() == ScalarOp::cast && value.type() == type && value.args()[0].type() == ElementType::f32)
    return value.args()[0];
  return value;
}

void BlockEmitter::emit_points(const BlockOp& op, int width, Slot slot, const Loaded& loaded) {
  const ScalarExpr value = stored_value(op);
  const auto run = [&] { store(op, point_values(op, value, width, slot, loaded), value.type(), slot); };
  if (!op.op.guard.defined()) return run();
  const auto fill = [&] {
    Value* constant = scalar_constant(b_.getContext(), ElementType::f32, *op.op.fill);
    store(op, std::vector<Value*>(static_cast<std::size_t>(width), constant), ElementType::f32, slot);
  };
  when_else(condition(op.op.guard), run, op.op.fill ? Body(fill) : Body());
}

/// Every point reads the accumulator and writes it back, in order.
void BlockEmitter::emit_point_reduction(const BlockOp& op, Slot slot) {
  const ElementType type = op.sum_type(), stored = plan_->buffer(op.op.write.buffer).type;
  if (op.op.initialize) {
    const double neutral = neutral_element(*op.op.reduction, type);
    for_serial(
        op, [](const OpDim& dim) { return !dim.reduced; },
        [&] { store(op, {scalar_constant(b_.getContext(), type, neutral)}, type, slot); });
  }
  for_serial(
      op, [](const OpDim&) { return true; },
      [&] {
        when(op.op.guard.defined() ? condition(op.op.guard) : nullptr, [&] {
          Value* value = convert(point_values(op, op.op.value, 1, slot), op.op.value.type(), type)[0];
          Value* old = convert(load(op, op.op.write, false, 1, slot), stored, type)[0];
          store(op, {emit_combine(b_, math_, *op.op.reduction, type, old, value)}, type, slot);
        });
      });
}

void BlockEmitter::emit_accumulation(const BlockOp& op, int width, Slot slot) {
  for_serial(
      op, [](const OpDim& dim) { return !dim.reduced; },
      [&] {
        const std::vector<Value*> sums = new_sums(op, width);
        if (op.chosen) {
          add_chosen_terms(op, sums, width, slot);
        } else {
          for_serial(op, [](const OpDim& dim) { return dim.reduced; }, [&] { accumulate(op, sums, width, slot); });
        }
        write_sums(op, read_sums(op, sums), slot);
      });
}

/// What combines with a sum of the op to that sum.
Value* BlockEmitter::neutral(const BlockOp& op) {
  return scalar_constant(b_.getContext(), op.sum_type(), neutral_element(*op.op.reduction, op.sum_type()));
}

std::vector<Value*> BlockEmitter::new_sums(const BlockOp& op, int count) {
  const ElementType type = op.sum_type();
  std::vector<Value*> sums;
  for (int k = 0; k < count; ++k) {
    sums.push_back(entry_alloca(register_type(b_.getContext(), type), "sum"));
    b_.CreateStore(neutral(op), sums.back());
  }
  return sums;
}

std::vector<Value*> BlockEmitter::read_sums(const BlockOp& op, const std::vector<Value*>& sums) {
  std::vector<Value*> values;
  values.reserve(sums.size());
  for (Value* sum : sums) values.push_back(b_.CreateLoad(register_type(b_.getContext(), op.sum_type()), sum));
  return values;
}

/// Adds the current point's (or vector of points') values to sums[0], sums[1], ..., going round when there are fewer sums.
void BlockEmitter::accumulate(const BlockOp& op, const std::vector<Value*>& sums, int width, Slot slot) {
  const ElementType type = op.sum_type();
  when(op.op.guard.defined() ? condition(op.op.guard) : nullptr, [&] {
    const std::vector<Value*> values = convert(point_values(op, op.op.value, width, slot), op.op.value.type(), type);
    for (std::size_t e = 0; e < values.size(); ++e) {
      Value* sum = sums[e % sums.size()];
      Value* old = b_.CreateLoad(register_type(b_.getContext(), type), sum);
      b_.CreateStore(emit_combine(b_, math_, *op.op.reduction, type, old, values[e]), sum);
    }
  });
}

void BlockEmitter::write_sums(const BlockOp& op, std::vector<Value*> sums, Slot slot) {
  const ElementType type = op.sum_type();
  if (op.op.initialize) return store(op, sums, type, slot);
  const IntExpr where = plan_->in_registers(op.op.write) ? IntExpr() : stored_where(op.op);
  when(where.defined() ? condition(where) : nullptr, [&] {
    const auto old = convert(load(op, op.op.write, op.write_vector, static_cast<int>(sums.size()), slot),
                             plan_->buffer(op.op.write.buffer).type, type);
    for (std::size_t e = 0; e < sums.size(); ++e) sums[e] = emit_combine(b_, math_, *op.op.reduction, type, old[e], sums[e]);
    store(op, sums, type, slot);
  });
}

Value* BlockEmitter::masked_element(const BlockOp& op, int ordinal, Slot slot, int element, Value* mask) {
  const TileAccess& access = op.op.reads[ordinal];
  if (mask == nullptr || plan_->in_registers(access)) {
    Slot at = slot;
    at.column += element;
    return load(op, access, false, 1, at)[0];
  }
  auto* before = b_.GetInsertBlock();
  Value* value = nullptr;
  llvm::BasicBlock* loaded = nullptr;
  llvm::Type* type = type_of(plan_->buffer(access.buffer));
  if (llvm::isa<llvm::ConstantInt>(mask)) {
    return llvm::cast<llvm::ConstantInt>(mask)->isOne() ? load_element(access) : llvm::Constant::getNullValue(type);
  }
  when(mask, [&] {
    value = load_element(access);
    loaded = b_.GetInsertBlock();
  });
  llvm::PHINode* result = b_.CreatePHI(type, 2);
  result->addIncoming(llvm::Constant::getNullValue(type), before);
  result->addIncoming(value, loaded);
  return result;
}

std::vector<Value*> BlockEmitter::load_read(const BlockOp& op, int ordinal, int width, Slot slot) {
  const auto k = static_cast<std::size_t>(ordinal);
  if (const StridedRead& run = op.strided_reads[k]; run.stride > 0 && width > 1) return load_strided(op.op.reads[k], run, width);
  return load(op, op.op.reads[k], op.read_vectors[k], width, slot);
}

std::vector<Value*> BlockEmitter::point_values(const BlockOp& op, const ScalarExpr& value, int width, Slot slot, Loaded loaded) {
  for (const int ordinal : unconditional_reads(value)) {
    if (!loaded.contains(ordinal)) loaded[ordinal] = load_read(op, ordinal, width, slot);
  }
  std::vector<Value*> values;
  for (int e = 0; e < width; ++e) {
    at_element(op, e, [&] {
      ScalarLeaves leaves;
      leaves.read = [&](int ordinal, Value* mask) {
        const auto found = loaded.find(ordinal);
        return found != loaded.end() ? found->second[e] : masked_element(op, ordinal, slot, e, mask);
      };
      leaves.index = [&](int ordinal) { return b_.CreateTrunc(integer(op.op.indices[ordinal]), b_.getInt32Ty()); };
      leaves.scalar = [&](const std::string& name, ElementType type) -> Value* {
        if (name != kWarpLead) return arguments_.scalars.at(name);
        return b_.CreateLoad(register_type(b_.getContext(), type), warp_leads_.at({op.warp_lead, slot.row}));
      };
      values.push_back(emit_scalar(b_, math_, value, leaves));
    });
  }
  return values;
}

}  // namespace nestor::nvptx
