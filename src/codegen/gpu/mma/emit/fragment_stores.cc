// Stores of fragments to memory: element by element, or through shared memory by tensor copies.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

/// What an expression has more at an odd value of the variable than at the even one before it; nullopt: not the same everywhere. Quotients by
/// even numbers do not change there.
std::optional<std::int64_t> step_of_pair(const IntExpr& expr, const std::string& variable) {
  if (!expr.uses(variable)) return 0;
  const auto step = [&](std::size_t k) { return step_of_pair(expr.args()[k], variable); };
  switch (expr.op()) {
    case IntOp::variable:
      return 1;
    case IntOp::add:
    case IntOp::sub: {
      const auto a = step(0), b = step(1);
      if (!a || !b) return std::nullopt;
      return expr.op() == IntOp::add ? *a + *b : *a - *b;
    }
    case IntOp::mul: {
      const auto a = expr.args()[0].as_constant(), b = expr.args()[1].as_constant();
      const auto inner = a ? step(1) : step(0);
      return inner && (a || b) ? std::optional(*inner * (a ? *a : *b)) : std::nullopt;
    }
    case IntOp::floor_div:
    case IntOp::mod: {
      const auto divisor = expr.args()[1].as_constant();
      std::set<std::string> none;
      const bool even = divisor && *divisor % 2 == 0 && known_multiple(expr.args()[0], {{variable, 2}}, {}, 1, none) % 2 == 0;
      const auto inner = step(0);
      if (inner == 0) return 0;
      return even && inner == 1 ? std::optional<std::int64_t>(expr.op() == IntOp::mod ? 1 : 0) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

void TensorEmitter::store(const TensorOp& op, int number) { op.through_shared ? store_tile(op, number) : store_elements(op); }

/// An element of 4, 2 or (truth values) 1 bytes, where `test` holds.
void TensorEmitter::store_where(Value* test, Value* address, Value* value, std::size_t bytes) {
  const bool half = bytes == 2;
  Value* bits =
      bytes == 1 ? b_.CreateZExt(value, b_.getInt32Ty()) : b_.CreateBitCast(value, half ? b_.getInt16Ty() : b_.getInt32Ty());
  ptx_.assembly(b_.getVoidTy(),
                fmt::format("{{\n\t.reg .pred p;\n\tsetp.ne.b32 p, $2, 0;\n\t@p st.global.b{} [$0], $1;\n\t}}", 8 * bytes),
                half ? "l,h,r" : "l,r,r", {address, bits, b_.CreateZExt(test, b_.getInt32Ty())});
}

void TensorEmitter::store_elements(const TensorOp& op) {
  if (op.column >= 0) return store_column_pairs(op);
  const Buffer& buffer = plan_->buffer(op.op.write.buffer);
  Tests tests = masks(op, op.memory_mask);
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int half = 0; half < 2; ++half) {
      const FragmentPlace place{tile, 0, half, 0};
      Value* value = element(op, op.op.value, place);
      Value* test = inside(op, tests, place);
      Value* first = b_.CreateICmpEQ(first_column_, constant(0));  // the four threads of a row hold the same
      set_point(op, place);
      store_where(test == nullptr ? first : b_.CreateAnd(test, first), argument_address(op.op.write), value,
                  size_in_bytes(buffer.type));
    }
  }
}

/// Elements of columns 2k and 2k + 1. What of an address follows the column is computed once for all rows, and lives no longer. Two elements of
/// 16 bits that are neighbours in memory go at once where the address allows it.
void TensorEmitter::store_column_pairs(const TensorOp& op) {
  const Buffer& buffer = plan_->buffer(op.op.write.buffer);
  const std::size_t bytes = size_in_bytes(buffer.type);
  const std::string& column = op.op.dims[static_cast<std::size_t>(op.column)].var;
  Tests tests = masks(op, op.memory_mask);
  llvm::Type* type = element_type(b_.getContext(), buffer.type);
  Value* aligned = bytes == 2 && pairs_are_neighbours(op.op.write, column) ? pairs_are_aligned(op.op.write) : nullptr;
  const auto of_column = [&](const IntExpr& index) { return index.uses(column) && !uses_row(op, index); };
  const auto of_both = [&](const IntExpr& index) { return index.uses(column) && uses_row(op, index); };
  std::map<int, Value*> rows;  ///< addresses without what follows the column, by tile and half
  for (int pair = 0; pair < pairs_of(op); ++pair) {
    Value* offsets[2];
    for (int e = 0; e < (aligned == nullptr ? 2 : 1); ++e) {
      set_point(op, {0, pair, 0, e});
      offsets[e] = argument_offset(op.op.write, of_column);
    }
    for (int row = 0; row < 2 * plan_->row_tiles; ++row) {
      Value *held[2], *places[2];
      for (int e = 0; e < 2; ++e) {
        const FragmentPlace place{row / 2, pair, row % 2, e};
        held[e] = inside(op, tests, place);
        if (held[e] == nullptr) held[e] = b_.getTrue();
        set_point(op, place);
        Value*& start = rows[row];
        if (start == nullptr) {
          Value* offset = argument_offset(op.op.write, [&](const IntExpr& index) { return !index.uses(column); });
          start = b_.CreateInBoundsGEP(type, arguments_.pointers.at(op.op.write.buffer), offset);
        }
        const bool behind = e == 1 && aligned != nullptr;
        places[e] = behind
                        ? b_.CreateConstInBoundsGEP1_64(type, places[0], 1)
                        : b_.CreateInBoundsGEP(type, start, b_.CreateNSWAdd(offsets[e], argument_offset(op.op.write, of_both)));
      }
      if (aligned == nullptr) {
        for (int e = 0; e < 2; ++e) store_where(held[e], places[e], element(op, op.op.value, {row / 2, pair, row % 2, e}), bytes);
        continue;
      }
      Value *word = pair_word(op, {row / 2, pair, row % 2, 0}), *both = b_.CreateAnd(aligned, b_.CreateAnd(held[0], held[1]));
      store_where(both, places[0], word, 4);
      for (int e = 0; e < 2; ++e) {
        Value* bits = b_.CreateTrunc(e == 0 ? word : b_.CreateLShr(word, 16), b_.getInt16Ty());
        store_where(b_.CreateAnd(held[e], b_.CreateNot(both)), places[e], bits, bytes);
      }
    }
  }
}

bool TensorEmitter::uses_row(const TensorOp& op, const IntExpr& index) const {
  const auto uses = [&](int dim) { return dim >= 0 && index.uses(op.op.dims[static_cast<std::size_t>(dim)].var); };
  return uses(op.row) || uses(op.pack);
}

/// How far the elements lie behind the argument's first one, by the indices that `pick` names.
llvm::Value* TensorEmitter::argument_offset(const TileAccess& access, const std::function<bool(const IntExpr&)>& pick) {
  Value* offset = b_.getInt64(0);
  for (int p = 0; p < static_cast<int>(access.index.size()); ++p) {
    const IntExpr& at = access.index[static_cast<std::size_t>(p)];
    if (!pick(at)) continue;
    Value* index = integer(at);
    if (p + 1 < static_cast<int>(access.index.size())) index = b_.CreateNSWMul(index, arguments_.strides.at({access.buffer, p}));
    offset = b_.CreateNSWAdd(offset, index);
  }
  return offset;
}

/// Does each even column lie at an even place of the last index, and the next one right behind it?
bool TensorEmitter::pairs_are_neighbours(const TileAccess& access, const std::string& column) {
  std::set<std::string> none;
  if (access.index.empty() || known_multiple(access.index.back(), {{column, 2}}, {}, 1, none) % 2 != 0) return false;
  for (std::size_t p = 0; p < access.index.size(); ++p) {
    if (step_of_pair(access.index[p], column) != (p + 1 == access.index.size() ? 1 : 0)) return false;
  }
  return true;
}

/// Where the argument starts and all its strides are such that even places of the last index lie at multiples of 4 bytes.
llvm::Value* TensorEmitter::pairs_are_aligned(const TileAccess& access) {
  Value* bits = b_.CreatePtrToInt(arguments_.pointers.at(access.buffer), b_.getInt64Ty());
  for (int p = 0; p + 1 < static_cast<int>(access.index.size()); ++p)
    bits = b_.CreateOr(bits, b_.CreateShl(arguments_.strides.at({access.buffer, p}), 1));
  return b_.CreateICmpEQ(b_.CreateAnd(bits, b_.getInt64(3)), b_.getInt64(0));
}

/// The result's elements of 16 bits at a place and the column behind it.
llvm::Value* TensorEmitter::pair_word(const TensorOp& op, FragmentPlace place) {
  const ElementType type = plan_->buffer(op.op.write.buffer).type;
  const bool narrowed = op.op.value.op() == ScalarOp::cast && op.op.value.args()[0].type() == ElementType::f32;
  const ScalarExpr value = narrowed ? op.op.value.args()[0] : op.op.value;
  Value* halves[2];
  for (int e = 0; e < 2; ++e) {
    place.element = e;
    halves[e] = element(op, value, place);
  }
  return pack(halves[0], halves[1], narrowed ? ElementType::f32 : type, type);
}

/// Four words of the result as 16-bit pairs: those of column pairs `pair` and `pair` + 1, in the order of a first operand's.
TensorEmitter::Values TensorEmitter::tile_words(const TensorOp& op, int tile, int pair) {
  Values words;
  for (int w = 0; w < 4; ++w) words.push_back(pair_word(op, {tile, std::min(pair + w / 2, pairs_of(op) - 1), w % 2, 0}));
  return words;
}

/// Blocks of columns that have a place go at once. Where these are not all, one by one: each waits for its place.
void WgmmaEmitter::store_tile(const TensorOp& op, int number) {
  std::size_t map = plan_->tile_rings();
  for (int k = 0; k < number; ++k) map += this->op(k).through_shared ? 1 : 0;
  const auto blocks = static_cast<int>(ceil_div(pairs_of(op), op.stage_columns / kSumColumns));
  const int at_once = op.stage_batch(blocks);
  for (int first = 0; first < blocks; first += at_once)
    store_columns(op, {first, first + at_once}, op.stage_pending.at(static_cast<std::size_t>(first / at_once)), maps_.at(map));
}

/// Where a copy of rows and columns that the argument has at two indices starts.
TensorEmitter::Values WgmmaEmitter::joined_start(const TensorOp& op, Value* row, int column) {
  environment_[op.op.dims[static_cast<std::size_t>(op.row)].var] = b_.CreateZExt(row, b_.getInt64Ty());
  environment_[op.op.dims[static_cast<std::size_t>(op.column)].var] = b_.getInt64(static_cast<std::uint64_t>(column));
  Values start;
  for (const IntExpr& index : op.op.write.index) start.push_back(b_.CreateTrunc(integer(index), b_.getInt32Ty()));
  return start;
}

/// Each warpgroup writes its rows of some blocks of columns to shared memory by stmatrix, swizzled as tensor copies expect them (lines of 128
/// bytes say how pieces of 16 bytes change places), and one thread starts the copies. Before, it waits until all but the youngest `pending` batches of copies have read; -1: the place is free.
void WgmmaEmitter::store_columns(const TensorOp& op, std::pair<int, int> column_blocks, int pending, Value* map) {
  Value* barrier = b_.CreateAdd(warpgroup_, constant(plan_->warpgroups + 1));
  Value* leader = b_.CreateICmpEQ(b_.CreateAnd(thread_, constant(kWarpgroupThreads - 1)), constant(0));
  if (pending >= 0) {
    ptx_.wait_stores_read(pending);
    ptx_.named_barrier_sync(barrier, kWarpgroupThreads);
  }
  Value* matrix = b_.CreateLShr(lane_, 3);
  Value* within = b_.CreateAdd(b_.CreateAnd(lane_, constant(7)), b_.CreateShl(b_.CreateAnd(matrix, constant(1)), 3));
  Value* warpgroup_row = b_.CreateMul(sharer_, constant(plan_->row_tiles * kWarpgroupRows));
  Value* base = b_.CreateAdd(shared_, constant(static_cast<int>(op.stage_offset)));
  if (work_tile_zero_ != nullptr) base = b_.CreateAdd(base, work_tile_zero_);
  const int pitch = op.stage_pitch(), block_bytes = plan_->rows() * pitch, block_pairs = op.stage_columns / kSumColumns;
  if (plan_->ping_pong_tiles()) base = b_.CreateAdd(base, b_.CreateMul(warpgroup_, constant(op.stage_blocks * block_bytes)));
  const auto place_of = [&](int block) { return constant(block % op.stage_blocks * block_bytes); };
  const int pairs = std::min(static_cast<int>(round_up(pairs_of(op), 2)), column_blocks.second * block_pairs);
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    Value* row =
        b_.CreateAdd(b_.CreateAdd(warpgroup_row, constant(tile * kWarpgroupRows)), b_.CreateAdd(b_.CreateShl(warp_, 4), within));
    Value* line = b_.CreateAdd(base, b_.CreateMul(row, constant(pitch)));
    Value* swap = b_.CreateAnd(b_.CreateLShr(row, std::countr_zero(static_cast<unsigned>(kSwizzleBytes / pitch))),
                               constant(block_pairs - 1));
    for (int pair = column_blocks.first * block_pairs; pair < pairs; pair += 2) {
      const Values words = tile_words(op, tile, pair);
      Value* piece = b_.CreateXor(b_.CreateAdd(b_.CreateLShr(matrix, 1), constant(pair % block_pairs)), swap);
      ptx_.store_matrices(b_.CreateAdd(b_.CreateAdd(line, place_of(pair / block_pairs)), b_.CreateShl(piece, 4)), words);
    }
  }
  ptx_.fence_async_proxy();
  ptx_.named_barrier_sync(barrier, kWarpgroupThreads);
  set_start(op);
  Values origin;
  const bool joined = op.joined_rows.period + op.joined_columns.period > 0;
  for (const IntExpr& index : op.op.write.index) {
    if (!joined) origin.push_back(b_.CreateTrunc(integer(index), b_.getInt32Ty()));
  }
  const CopiedRows copy = copied_rows(*plan_, op);
  when(leader, [&] {
    for (int tile = 0; tile < plan_->row_tiles * kWarpgroupRows; tile += copy.rows) {
      for (int block = column_blocks.first; block < column_blocks.second; ++block) {
        Value* first = b_.CreateAdd(warpgroup_row, constant(tile));
        Values coordinates = joined ? joined_start(op, own_rows(first), block * op.stage_columns) : origin;
        if (!joined) {
          Value*& row = coordinates[static_cast<std::size_t>(op.row_index)];
          row = b_.CreateAdd(row, pack_at(own_rows(first)));
          coordinates.back() = b_.CreateAdd(coordinates.back(), constant(block * op.stage_columns));
        }
        Value* address = b_.CreateAdd(base, b_.CreateMul(first, constant(pitch)));
        ptx_.store_tile(map, copied_at(coordinates, copy.outer, copy.inner), b_.CreateAdd(address, place_of(block)));
      }
    }
    ptx_.commit_stores();
    if (!plan_->persistent() && column_blocks.second * block_pairs >= pairs_of(op)) ptx_.wait_stores_read(0);
  });
}

}  // namespace nestor::nvptx
