// Ops whose rows share what is read along columns (scales, statistics of channels): each thread loads that once for its columns, and then
// goes through its rows, a few at a time with all their loads in flight.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include <llvm/IR/InlineAsm.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

using llvm::Value;

constexpr std::int64_t kRowsAtOnce = 4;

/// The value, made here: LLVM moves a load that one branch alone needs into that branch.
Value* made_here(llvm::IRBuilder<>& b, Value* value) {
  llvm::Type* type = value->getType();
  const bool half = type->isHalfTy() || type->isBFloatTy();
  if (!half && !type->isFloatTy() && !type->isIntegerTy(32)) return value;
  llvm::Type* word = half ? b.getInt16Ty() : type;
  const char* text = half ? "mov.b16 $0, $1;" : "mov.b32 $0, $1;";
  const char* places = half ? "=h,h" : type->isFloatTy() ? "=f,f" : "=r,r";
  auto* function = llvm::FunctionType::get(word, {word}, false);
  return b.CreateBitCast(
      b.CreateCall(function, llvm::InlineAsm::get(function, text, places, true), {b.CreateBitCast(value, word)}), type);
}

}  // namespace

void BlockEmitter::emit_rows_at_once(const BlockOp& op, const std::set<int>& shared) {
  const auto bound = op.row_bound();
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    const OpDim& dim = op.op.dims[d];
    if (op.roles[d] == DimRole::serial && single_valued(dim)) environment_[dim.var] = integer(dim.lower);
  }
  Value* any = nullptr;  // a row of an empty dim must not be loaded in the place of one that does not exist
  for (const int d : op.rows) {
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    if (!exact_extent(dim)) any = both(any, b_.CreateICmpSGT(extent(dim), b_.getInt64(0)));
  }
  Value* slots = row_slots(op);
  const std::int64_t slots_of_bound = bound ? op.layout.row_slots(*bound) : 0;
  const std::int64_t at_once = bound ? std::min(kRowsAtOnce, slots_of_bound) : kRowsAtOnce;
  when(any, [&] {
    for_columns(op, [&](int width, int column_slot) {
      Loaded loaded;
      for (const int ordinal : shared) loaded[ordinal] = load_read(op, ordinal, width, {0, column_slot});
      loop(b_.getInt64(0), slots, at_once, [&](Value* first) {
        emit_batch_of_rows(op, width, {0, column_slot}, loaded, first, at_once,
                           bound && slots_of_bound % at_once == 0 ? nullptr : slots);
      });
    });
  });
}

/// The slots from `first` on, below `end` unless it is null. All loads come first, of rows that do not exist at the first row; then values and
/// stores, of rows that exist.
void BlockEmitter::emit_batch_of_rows(const BlockOp& op, int width, Slot slot, const Loaded& shared, Value* first,
                                      std::int64_t count, Value* end) {
  struct Row {
    std::map<std::string, Value*> environment;
    Value* exists = nullptr;
    Loaded loaded;
  };
  const auto outer = environment_;
  std::vector<Row> rows;
  for (std::int64_t k = 0; k < count; ++k) {
    Value* number = b_.CreateNSWAdd(first, b_.getInt64(static_cast<std::uint64_t>(k)));
    Row row;
    row.exists = both(end == nullptr ? nullptr : b_.CreateICmpSLT(number, end), set_row(op, -1, number));
    for (const int d : op.rows) {
      const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
      if (row.exists != nullptr)
        environment_[dim.var] = b_.CreateSelect(row.exists, environment_.at(dim.var), integer(dim.lower));
    }
    row.loaded = shared;
    for (const int ordinal : unconditional_reads(op.op.value)) {
      if (!shared.contains(ordinal)) row.loaded[ordinal] = load_read(op, ordinal, width, slot);
    }
    row.environment = environment_;
    rows.push_back(std::move(row));
    environment_ = outer;
  }
  for (Row& row : rows) {
    for (auto& [ordinal, values] : row.loaded) {
      if (!shared.contains(ordinal))
        std::transform(values.begin(), values.end(), values.begin(), [&](Value* value) { return made_here(b_, value); });
    }
  }
  for (const Row& row : rows) {
    environment_ = row.environment;
    when(row.exists, [&] { emit_points(op, width, slot, row.loaded); });
  }
  environment_ = outer;
}

}  // namespace nestor::nvptx
