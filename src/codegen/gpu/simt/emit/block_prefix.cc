// Prefix sums along columns: each thread adds up its own columns, the lanes of a warp scan these sums by butterfly shuffles, and warps through
// shared memory. Then each element is what stands before its thread, and before it in the thread. Along a dim that a thread runs through by
// itself, one running sum gives all elements.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <algorithm>

namespace nestor::nvptx {

using llvm::Value;

namespace {

/// Terms that a thread loads before it adds them up one after the other.
constexpr int kTermsAtOnce = 8;

}  // namespace

/// Sums of one pass over a row: of the chunks of columns that a thread has at once.
struct BlockEmitter::PrefixSums {
  std::vector<Value*> elements;  ///< alloca by chunk and element: its term, then the thread's own sum up to it, or before it
  std::vector<Value*> totals;    ///< by chunk: of the thread, then of its warp
  std::vector<Value*> before;    ///< by chunk: what stands before the thread
  Value* carry = nullptr;        ///< alloca: what stands before the pass; null where it is the only one
};

Value* BlockEmitter::added(const BlockOp& op, Value* a, Value* b) {
  return emit_combine(b_, math_, *op.op.reduction, op.sum_type(), a, b);
}

std::vector<Value*> BlockEmitter::prefix_terms(const BlockOp& op, int width, Slot slot) {
  return convert(point_values(op, op.op.value, width, slot), op.op.value.type(), op.sum_type());
}

void BlockEmitter::emit_prefix(const BlockOp& op) {
  const bool to_registers = plan_->in_registers(op.op.write);
  if (!op.spreads_prefix()) {
    return for_rows(op, false, [&](int slot, Value*, Value* row_ok) {
      when(to_registers ? row_ok : both(row_ok, owner(op)),
           [&] { for_columns(op, [&](int width, int column_slot) { emit_serial_prefix(op, width, {slot, column_slot}); }); });
    });
  }
  const std::int64_t chunks = op.prefix_chunks(), chunk = std::int64_t{op.layout.lanes} * op.layout.vector;
  const OpDim& dim = op.op.dims[op.column];
  for_rows(op, op.prefix_crosses_warps(), [&](int slot, Value*, Value* row_ok) {
    for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
      if (op.roles[d] == DimRole::serial) environment_[op.op.dims[d].var] = integer(op.op.dims[d].lower);
    }
    PrefixSums sums;
    sums.elements = new_sums(op, static_cast<int>(chunks) * op.layout.vector);
    if (op.prefix_in_one_pass()) {
      prefix_pass(op, slot, row_ok, b_.getInt64(0), sums);
    } else {
      sums.carry = new_sums(op, 1)[0];
      Value* passes = b_.CreateUDiv(b_.CreateNSWAdd(extent(dim), b_.getInt64(static_cast<std::uint64_t>(chunk - 1))),
                                    b_.getInt64(static_cast<std::uint64_t>(chunk)));
      loop(b_.getInt64(0), passes, 1, [&](Value* pass) {
        Value* place = op.prefix->backward ? b_.CreateNSWSub(b_.CreateNSWSub(passes, b_.getInt64(1)), pass) : pass;
        prefix_pass(op, slot, row_ok, b_.CreateNSWMul(place, b_.getInt64(static_cast<std::uint64_t>(chunk))), sums);
      });
    }
  });
}

void BlockEmitter::prefix_pass(const BlockOp& op, int slot, Value* row_ok, Value* base, PrefixSums& sums) {
  load_prefix_terms(op, slot, row_ok, base, sums);
  scan_warps(op, sums);
  scan_block(op, sums);
  store_prefix(op, slot, row_ok, base, sums);
  // The next pass or row uses the same place.
  if (op.prefix_crosses_warps() && (sums.carry != nullptr || !op.rows.empty())) barrier();
}

/// Terms of columns that do not exist are neutral.
void BlockEmitter::load_prefix_terms(const BlockOp& op, int slot, Value* row_ok, Value* base, PrefixSums& sums) {
  Value* none = neutral(op);
  for (Value* element : sums.elements) b_.CreateStore(none, element);
  const OpDim& dim = op.op.dims[op.column];
  // Sums without their own term: where there is one column, no term is read.
  Value* some = op.prefix->exclusive ? b_.CreateICmpSGT(extent(dim), b_.getInt64(1)) : nullptr;
  const auto outer = environment_;
  when(both(row_ok, some), [&] {
    for_prefix_chunks(op, base, [&](int width, int column_slot) {
      const std::vector<Value*> terms = prefix_terms(op, width, {slot, column_slot});
      for (std::size_t e = 0; e < terms.size(); ++e)
        b_.CreateStore(terms[e], sums.elements[static_cast<std::size_t>(column_slot) + e]);
    });
  });
  environment_ = outer;
}

/// Within threads in order, then over the lanes of a warp that have one row.
void BlockEmitter::scan_warps(const BlockOp& op, PrefixSums& sums) {
  const ElementType type = op.sum_type();
  llvm::Type* word = register_type(b_.getContext(), type);
  Value* none = neutral(op);
  const auto vector = static_cast<std::size_t>(op.layout.vector);
  const bool backward = op.prefix->backward;
  sums.totals.clear();
  sums.before.clear();
  for (std::size_t chunk = 0; chunk < sums.elements.size() / vector; ++chunk) {
    Value* total = nullptr;
    for (std::size_t k = 0; k < vector; ++k) {
      Value* element = sums.elements[chunk * vector + (backward ? vector - 1 - k : k)];
      Value* own = b_.CreateLoad(word, element);
      Value* up_to = total == nullptr ? own : added(op, total, own);
      b_.CreateStore(!op.prefix->exclusive ? up_to : total == nullptr ? none : total, element);
      total = up_to;
    }
    Value* before = none;
    for (int distance = 1; distance < std::min(op.layout.lanes, 32); distance *= 2) {
      Value* other = shuffled(total, type, distance);
      Value* bit = b_.CreateAnd(position(op.layout).lane, b_.getInt32(static_cast<std::uint32_t>(distance)));
      Value* behind = backward ? b_.CreateICmpEQ(bit, b_.getInt32(0)) : b_.CreateICmpNE(bit, b_.getInt32(0));
      before = b_.CreateSelect(behind, added(op, other, before), before);
      total = added(op, total, other);
    }
    sums.totals.push_back(total);
    sums.before.push_back(before);
  }
}

Value* BlockEmitter::prefix_address(const BlockOp& op, std::int64_t chunk, std::int64_t warp) {
  const std::int64_t warps = op.layout.lanes / 32, chunks = op.prefix_chunks();
  Value* group = b_.CreateZExt(position(op.layout).group, b_.getInt64Ty());
  Value* first = b_.CreateNSWMul(group, b_.getInt64(static_cast<std::uint64_t>(chunks * warps)));
  Value* index = b_.CreateNSWAdd(first, b_.getInt64(static_cast<std::uint64_t>(chunk * warps + warp)));
  return shared_address(register_type(b_.getContext(), op.sum_type()), op.partials_offset, index);
}

/// What stands before each warp: the sums of those before it, in every chunk, and of the chunks and passes before.
void BlockEmitter::scan_block(const BlockOp& op, PrefixSums& sums) {
  const ElementType type = op.sum_type();
  llvm::Type* word = register_type(b_.getContext(), type);
  Value* none = neutral(op);
  const std::int64_t warps = op.prefix_crosses_warps() ? op.layout.lanes / 32 : 1;
  const auto chunks = static_cast<std::int64_t>(sums.totals.size());
  Value* own_warp = b_.CreateUDiv(position(op.layout).lane, b_.getInt32(32));
  if (op.prefix_crosses_warps()) {
    Value* first = b_.CreateICmpEQ(b_.CreateURem(position(op.layout).lane, b_.getInt32(32)), b_.getInt32(0));
    when(first, [&] {
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        Value* place = b_.CreateInBoundsGEP(word, prefix_address(op, chunk, 0), {b_.CreateZExt(own_warp, b_.getInt64Ty())});
        b_.CreateAlignedStore(sums.totals[static_cast<std::size_t>(chunk)], place, llvm::Align(4));
      }
    });
    barrier();
  }
  Value* running = sums.carry != nullptr ? b_.CreateLoad(word, sums.carry) : none;
  for (std::int64_t k = 0; k < chunks; ++k) {
    const std::int64_t chunk = op.prefix->backward ? chunks - 1 - k : k;
    Value* before = running;
    for (std::int64_t w = 0; w < warps; ++w) {
      const std::int64_t warp = op.prefix->backward ? warps - 1 - w : w;
      Value* total = warps == 1 ? sums.totals[static_cast<std::size_t>(chunk)]
                                : b_.CreateAlignedLoad(word, prefix_address(op, chunk, warp), llvm::Align(4));
      running = added(op, running, total);
      if (w + 1 == warps) break;
      Value* number = b_.getInt32(static_cast<std::uint32_t>(warp));
      Value* behind = op.prefix->backward ? b_.CreateICmpULT(own_warp, number) : b_.CreateICmpUGT(own_warp, number);
      before = b_.CreateSelect(behind, running, before);
    }
    Value*& of_thread = sums.before[static_cast<std::size_t>(chunk)];
    of_thread = added(op, before, of_thread);
  }
  if (sums.carry != nullptr) b_.CreateStore(running, sums.carry);
}

void BlockEmitter::store_prefix(const BlockOp& op, int slot, Value* row_ok, Value* base, const PrefixSums& sums) {
  llvm::Type* word = register_type(b_.getContext(), op.sum_type());
  const auto outer = environment_;
  when(plan_->in_registers(op.op.write) ? row_ok : both(row_ok, owner(op)), [&] {
    for_prefix_chunks(op, base, [&](int width, int column_slot) {
      Value* before = sums.before[static_cast<std::size_t>(column_slot / op.layout.vector)];
      std::vector<Value*> values;
      for (int e = 0; e < width; ++e)
        values.push_back(added(op, before, b_.CreateLoad(word, sums.elements[static_cast<std::size_t>(column_slot + e)])));
      write_sums(op, values, {slot, column_slot});
    });
  });
  environment_ = outer;
}

/// The chunks of a pass that starts at column `base`, by the slots of the pass.
void BlockEmitter::for_prefix_chunks(const BlockOp& op, Value* base, const std::function<void(int, int)>& body) {
  const auto exact = exact_extent(op.op.dims[op.column]);
  const std::int64_t chunk = std::int64_t{op.layout.lanes} * op.layout.vector;
  Value* lane = b_.CreateZExt(position(op.layout).lane, b_.getInt64Ty());
  Value* start = b_.CreateNSWAdd(b_.CreateNSWMul(lane, b_.getInt64(static_cast<std::uint64_t>(op.layout.vector))), base);
  for (std::int64_t k = 0; k < op.prefix_chunks(); ++k) {
    Value* first = b_.CreateNSWAdd(start, b_.getInt64(static_cast<std::uint64_t>(k * chunk)));
    const bool only = op.prefix_chunks() * chunk >= exact.value_or(chunk * op.prefix_chunks() + 1);
    const bool whole = exact && (only ? (k + 1) * chunk <= *exact : *exact % chunk == 0);
    column_chunk(op, first, whole, static_cast<int>(k) * op.layout.vector, body);
  }
}

/// A thread's own dim: a few terms are loaded, then added one after the other.
void BlockEmitter::emit_serial_prefix(const BlockOp& op, int width, Slot slot) {
  const OpDim& dim = op.op.dims[op.prefix->kept];
  const bool backward = op.prefix->backward;
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    if (op.roles[d] == DimRole::serial) environment_[op.op.dims[d].var] = integer(op.op.dims[d].lower);
  }
  const std::vector<Value*> sums = new_sums(op, width), own = new_sums(op, width);
  Value* length = extent(dim);
  const auto at = [&](Value* number) {
    Value* place = backward ? b_.CreateNSWSub(b_.CreateNSWSub(length, b_.getInt64(1)), number) : number;
    environment_[dim.var] = b_.CreateNSWAdd(integer(dim.lower), place);
  };
  const auto add = [&](const std::vector<Value*>& terms) {
    const std::vector<Value*> old = read_sums(op, sums);
    std::vector<Value*> values;
    for (std::size_t e = 0; e < sums.size(); ++e) values.push_back(added(op, old[e], terms[e]));
    write_sums(op, op.prefix->exclusive ? old : values, slot);
    for (std::size_t e = 0; e < sums.size(); ++e) b_.CreateStore(values[e], sums[e]);
  };
  const auto run = [&](Value* from, Value* to, int count) {
    loop(
        from, to, count,
        [&](Value* first) {
          std::vector<std::vector<Value*>> terms;
          const auto number = [&](int k) { return b_.CreateNSWAdd(first, b_.getInt64(static_cast<std::uint64_t>(k))); };
          for (int k = 0; k < count; ++k) {
            at(number(k));
            // Of sums without their own term, the only one has none.
            when(op.prefix->exclusive && count == 1 ? b_.CreateICmpSGT(length, b_.getInt64(1)) : nullptr, [&] {
              const std::vector<Value*> found = prefix_terms(op, width, slot);
              if (count > 1) return terms.push_back(found);
              for (std::size_t e = 0; e < own.size(); ++e) b_.CreateStore(found[e], own[e]);
            });
            if (count == 1) terms.push_back(read_sums(op, own));
          }
          for (int k = 0; k < count; ++k) {
            at(number(k));
            add(terms[static_cast<std::size_t>(k)]);
          }
        },
        kRolled);
  };
  Value* several = b_.CreateNSWMul(b_.CreateSDiv(length, b_.getInt64(kTermsAtOnce)), b_.getInt64(kTermsAtOnce));
  run(b_.getInt64(0), several, kTermsAtOnce);
  run(several, length, 1);
}

/// What does not hang on the point before is loaded for a few points at once.
void BlockEmitter::emit_recurrence(const BlockOp& op, Slot slot) {
  std::size_t own = 0;
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    if (op.roles[d] != DimRole::serial) continue;
    if (single_valued(op.op.dims[d])) environment_[op.op.dims[d].var] = integer(op.op.dims[d].lower);
    if (!single_valued(op.op.dims[d])) own = d;
  }
  const OpDim& dim = op.op.dims[own];
  std::set<int> others = unconditional_reads(op.op.value);
  others.erase(op.carried);
  Value *first = integer(dim.lower), *length = extent(dim);
  Value* before = entry_alloca(b_.getFloatTy(), "before");
  when(b_.CreateICmpSGT(length, b_.getInt64(0)), [&] {
    environment_[dim.var] = first;
    b_.CreateStore(load_read(op, op.carried, 1, slot)[0], before);
  });
  const auto run = [&](Value* from, Value* to, int count) {
    loop(
        from, to, count,
        [&](Value* start) {
          std::vector<Loaded> loaded(static_cast<std::size_t>(count));
          const auto at = [&](std::size_t k) {
            environment_[dim.var] = b_.CreateNSWAdd(first, b_.CreateNSWAdd(start, b_.getInt64(k)));
          };
          for (std::size_t k = 0; k < loaded.size(); ++k) {
            at(k);
            for (const int ordinal : others) loaded[k][ordinal] = load_read(op, ordinal, 1, slot);
          }
          for (std::size_t k = 0; k < loaded.size(); ++k) {
            at(k);
            loaded[k][op.carried] = {b_.CreateLoad(b_.getFloatTy(), before)};
            const std::vector<Value*> values = point_values(op, op.op.value, 1, slot, loaded[k]);
            store(op, values, ElementType::f32, slot);
            b_.CreateStore(values[0], before);
          }
        },
        kRolled);
  };
  Value* several = b_.CreateNSWMul(b_.CreateSDiv(length, b_.getInt64(kTermsAtOnce)), b_.getInt64(kTermsAtOnce));
  run(b_.getInt64(0), several, kTermsAtOnce);
  run(several, length, 1);
}

}  // namespace nestor::nvptx
