// Sums whose terms read other elements of what they write: one or some neighbouring ones at once in a thread's registers.
#include "codegen/gpu/simt/emit/block_emitter.h"
#include "codegen/tile/analysis/conditions.h"

#include <algorithm>

namespace nestor::nvptx {

using llvm::Value;

namespace {

/// Terms that a thread loads at once.
constexpr int kTermsOfRows = 4, kTermsOfOne = 8;

}  // namespace

/// Adds the current point's term to a sum; what is in `loaded` need not be loaded.
void BlockEmitter::add_own_term(const BlockOp& op, Value* sum, Slot slot, const Loaded& loaded) {
  const ElementType type = op.sum_type();
  Value* term = convert(point_values(op, op.op.value, 1, slot, loaded), op.op.value.type(), type)[0];
  Value* old = b_.CreateLoad(register_type(b_.getContext(), type), sum);
  b_.CreateStore(emit_combine(b_, math_, *op.op.reduction, type, old, term), sum);
}

void BlockEmitter::emit_own_sums(const BlockOp& op, Slot slot) {
  const OwnSums& own = *op.own_sums;
  if (own.at_once == 1) {
    const IntExpr where = stored_where(op.op);
    return for_serial(
        op, [](const OpDim& dim) { return !dim.reduced; },
        [&] {
          when(where.defined() ? condition(where) : nullptr, [&] {
            Value* sum = new_sums(op, 1)[0];
            b_.CreateStore(load(op, op.op.write, false, 1, slot)[0], sum);
            for_serial(
                op, [](const OpDim& dim) { return dim.reduced; },
                [&] {
                  when(op.op.guard.defined() ? condition(op.op.guard) : nullptr, [&] { add_own_term(op, sum, slot, {}); });
                });
            store(op, read_sums(op, {sum}), op.sum_type(), slot);
          });
        });
  }
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    if (op.roles[d] == DimRole::serial && single_valued(op.op.dims[d]))
      environment_[op.op.dims[d].var] = integer(op.op.dims[d].lower);
  }
  const OpDim &row = op.op.dims[own.row], &term = op.op.dims[own.term];
  const auto number = [&](std::int64_t value) { return b_.getInt64(static_cast<std::uint64_t>(value)); };
  Value *first = integer(row.lower), *end = integer(row.upper);
  const auto length = exact_extent(row);
  // Rows that fill no whole tile come first, where there are fewest terms.
  const std::int64_t before = length ? std::max<std::int64_t>(*length, 0) % own.at_once : 0;
  Value* start = b_.CreateNSWAdd(first, number(before));
  if (before > 0) emit_rows_of_sums(op, first, static_cast<int>(before), false, slot);
  if (!length) {
    Value* rows = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, b_.CreateNSWSub(end, first), number(0));
    start = b_.CreateNSWAdd(first, b_.CreateSRem(rows, number(own.at_once)));
    loop(first, start, 1, [&](Value* one) { emit_rows_of_sums(op, one, 1, false, slot); });
  }
  const Affine terms = affine_of(row.lower + IntExpr(before + own.end)) - affine_of(term.lower);
  const bool whole = length && terms.is_constant() && terms.constant % own.width == 0 && own.at_once % own.width == 0;
  loop(start, end, own.at_once, [&](Value* tile) { emit_rows_of_sums(op, tile, own.at_once, whole, slot); });
}

/// The elements of so many terms from the current one on that lie next to each other, by term.
std::vector<BlockEmitter::Loaded> BlockEmitter::load_terms(const BlockOp& op, int width) {
  std::vector<Loaded> terms(static_cast<std::size_t>(width));
  for (std::size_t ordinal = 0; ordinal < op.own_sums->vectors.size(); ++ordinal) {
    if (!op.own_sums->vectors[ordinal]) continue;
    const std::vector<Value*> found = load_vector(op.op.reads[ordinal], width);
    for (std::size_t k = 0; k < terms.size(); ++k) terms[k][static_cast<int>(ordinal)] = {found[k]};
  }
  return terms;
}

/// The terms of the first row, which all rows from `start` on have. `whole`: they are whole vectors.
void BlockEmitter::add_common_terms(const BlockOp& op, Value* start, const std::vector<Value*>& sums, bool whole, Slot slot) {
  const OwnSums& own = *op.own_sums;
  const OpDim &row = op.op.dims[own.row], &term = op.op.dims[own.term];
  const auto number = [&](std::int64_t value) { return b_.getInt64(static_cast<std::uint64_t>(value)); };
  Value *first = integer(term.lower), *end = b_.CreateNSWAdd(start, number(own.end));
  const auto add = [&](Value* at, int width) {
    std::vector<std::vector<Loaded>> loaded;
    for (std::size_t r = 0; r < sums.size(); ++r) {
      environment_[row.var] = b_.CreateNSWAdd(start, b_.getInt64(r));
      environment_[term.var] = at;
      loaded.push_back(width > 1 ? load_terms(op, width) : std::vector<Loaded>(1));
    }
    for (int k = 0; k < width; ++k) {
      environment_[term.var] = b_.CreateNSWAdd(at, number(k));
      for (std::size_t r = 0; r < sums.size(); ++r) {
        environment_[row.var] = b_.CreateNSWAdd(start, b_.getInt64(r));
        add_own_term(op, sums[r], slot, loaded[r][static_cast<std::size_t>(k)]);
      }
    }
  };
  if (own.width > 1) {
    Value* vectors = b_.CreateSDiv(b_.CreateNSWSub(end, first), number(own.width));
    Value* rest = whole ? end : b_.CreateNSWAdd(first, b_.CreateNSWMul(vectors, number(own.width)));
    loop(first, rest, own.width, [&](Value* at) { add(at, own.width); });
    if (whole) return;
    first = rest;
  }
  loop(first, end, 1, [&](Value* at) { add(at, 1); }, sums.size() > 1 ? kTermsOfRows : kTermsOfOne);
}

/// The sums of so many rows from `start` on: the terms that all have, then what each has beside, whose elements are those of rows before it.
void BlockEmitter::emit_rows_of_sums(const BlockOp& op, Value* start, int count, bool whole, Slot slot) {
  const OwnSums& own = *op.own_sums;
  const std::string &row = op.op.dims[own.row].var, &term = op.op.dims[own.term].var;
  const auto after = [&](std::int64_t distance) {
    return b_.CreateNSWAdd(start, b_.getInt64(static_cast<std::uint64_t>(distance)));
  };
  const std::vector<Value*> sums = new_sums(op, count);
  for (int r = 0; r < count; ++r) {
    environment_[row] = after(r);
    b_.CreateStore(load(op, op.op.write, false, 1, slot)[0], sums[r]);
  }
  add_common_terms(op, start, sums, whole, slot);
  for (int r = 1; r < count; ++r) {
    environment_[row] = after(r);
    std::vector<Loaded> loaded(static_cast<std::size_t>(r));
    for (int k = 0; whole && own.width > 1 && k + own.width <= r; k += own.width) {
      environment_[term] = after(own.end + k);
      std::vector<Loaded> found = load_terms(op, own.width);
      std::move(found.begin(), found.end(), loaded.begin() + k);
    }
    for (int k = 0; k < r; ++k) {
      environment_[term] = after(own.end + k);
      const std::int64_t from = own.end + k + own.shift;  // row, from `start` on
      for (int ordinal = 0; from >= 0 && ordinal < static_cast<int>(op.op.reads.size()); ++ordinal) {
        if (op.op.reads[ordinal].buffer == op.op.write.buffer) loaded[k][ordinal] = read_sums(op, {sums[from]});
      }
      add_own_term(op, sums[r], slot, loaded[k]);
    }
  }
  for (int r = 0; r < count; ++r) {
    environment_[row] = after(r);
    store(op, read_sums(op, {sums[r]}), op.sum_type(), slot);
  }
}

}  // namespace nestor::nvptx
