// Products on tensor cores: operands by descriptor or from registers, sums in registers.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr int kMostColumns = 256;  ///< of one product
constexpr int kEightRows = 8 * kSwizzleBytes;
constexpr int kNoStride = 16;  ///< of descriptors whose leading stride is not used

/// Bytes from the first k to those of a step, in blocks of 64 k.
int step_offset(const CircularBuffer& ring, int step) {
  const int k = step * kProductStep;
  return k / kBlockColumns * ring.rows * kSwizzleBytes + k % kBlockColumns * 2;
}

}  // namespace

/// A first operand that is in registers: the four words of 64 rows and 16 values of k; empty where it is in shared memory.
TensorEmitter::Values TensorEmitter::held_operand(const TensorOp& op, int k, int tile, int step, int half) {
  if (op.a_ring >= 0 && !ring(op.a_ring).in_registers) return {};
  const Values& all = op.a_ring < 0 ? state_.operands.at(k) : state_.held.at(op.a_ring);
  const std::ptrdiff_t tiles = std::ptrdiff_t{half} * plan_->row_tiles + tile;
  const auto first = all.begin() + 4 * (tiles * (op.k / kProductStep) + step);
  return {first, first + 4};
}

/// The operand of 64 rows and 16 values of k: four registers, or a descriptor.
WgmmaEmitter::Values WgmmaEmitter::first_operand(const TensorOp& op, int k, int tile, int step, int half) {
  if (Values held = held_operand(op, k, tile, step, half); !held.empty()) return held;
  const CircularBuffer& a = ring(op.a_ring);
  // By rows: blocks of 64 rows, each [k][64]. Else blocks of 64 k, each [rows][64].
  const int tile_bytes = (op.a_by_row ? a.rows : kWarpgroupRows) * kSwizzleBytes;
  const int step_bytes = op.a_by_row ? step * kProductStep * kSwizzleBytes : step_offset(a, step);
  Value* own = b_.CreateMul(sharer_, constant(plan_->row_tiles * tile_bytes));
  return {descriptor(op.a_ring, own, tile * tile_bytes + step_bytes, op.a_by_row ? a.rows * kSwizzleBytes : kNoStride)};
}

/// Descriptor of what lies `offset` bytes (and `own`, which may be null) into the circular buffer's current tile. Added up behind the conversion to a
/// descriptor, which so is made once.
WgmmaEmitter::Value* WgmmaEmitter::descriptor(int ring, Value* own, int offset, int leading_stride) {
  const CircularBuffer& info = this->ring(ring);
  Value* start = ptx_.descriptor(b_.CreateAdd(shared_, constant(static_cast<int>(info.offset))), leading_stride, kEightRows);
  Value* moved = b_.CreateMul(state_.positions.at(ring).first, constant(static_cast<int>(info.stage_bytes() >> 4)));
  if (own != nullptr) moved = b_.CreateAdd(moved, b_.CreateLShr(own, 4));
  start = b_.CreateAdd(start, b_.CreateZExt(moved, b_.getInt64Ty()));
  return b_.CreateAdd(start, b_.getInt64(static_cast<std::uint64_t>(offset >> 4)));
}

void WgmmaEmitter::product(int k) {
  const TensorOp& op = this->op(k);
  const CircularBuffer& b = ring(op.b_ring);
  Values& sums = state_.tiles[op.op.write.buffer];
  const std::size_t per_tile = static_cast<std::size_t>(op.n) / 2;
  if (op.op.initialize) sums.assign(per_tile * static_cast<std::size_t>(plan_->row_tiles), nullptr);
  if (sums.empty()) internal_error("tensor kernel: {} adds to a tile that has no value", op.op.name);
  // Known zeros need not be in registers, whose writing would make products under way wait.
  const auto is_zero = [](Value* value) {
    const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(value);
    return value == nullptr || (number != nullptr && number->isZero());
  };
  const bool starts = std::all_of(sums.begin(), sums.end(), is_zero);
  ptx_.wgmma_fence();
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int column = 0; column < op.n; column += kMostColumns) {
      const int width = std::min(op.n - column, kMostColumns);
      const auto first = sums.begin() + static_cast<std::ptrdiff_t>(per_tile) * tile + column / 2;
      Values part;
      if (!starts) part.assign(first, first + width / 2);
      for (int term = 0; term < op.halves * op.k / kProductStep; ++term) {
        const int half = term / (op.k / kProductStep), step = term % (op.k / kProductStep);
        // By columns: blocks of 64 columns, each [k][64]. Else blocks of 64 k, each [columns][64].
        const int offset = op.b_by_column ? column / kBlockColumns * b.rows * kSwizzleBytes + step * kProductStep * kSwizzleBytes
                                          : step_offset(b, step) + column * kSwizzleBytes;
        Value* second = descriptor(op.b_ring, nullptr, offset, op.b_by_column ? b.rows * kSwizzleBytes : kNoStride);
        part = ptx_.wgmma(width, to_string(op.product_type), part, first_operand(op, k, tile, step, half), second, op.a_by_row,
                          op.b_by_column);
      }
      std::copy(part.begin(), part.end(), first);
    }
  }
  ptx_.wgmma_commit();
  in_flight_.push_back(k);
}

void WgmmaEmitter::settle_products() {
  ptx_.wgmma_wait(0);
  for (const int sums : sums_under_way()) ptx_.pin(state_.tiles.at(sums));
}

std::set<int> WgmmaEmitter::sums_under_way() const {
  std::set<int> sums;
  for (const int k : in_flight_) sums.insert(op(k).op.write.buffer);
  return sums;
}

void WgmmaEmitter::wait_products(int count) {
  ptx_.wgmma_wait(count);
  while (static_cast<int>(in_flight_.size()) > count) {
    const int sums = op(in_flight_.front()).op.write.buffer;
    in_flight_.pop_front();
    if (sums_under_way().count(sums) == 0) ptx_.pin(state_.tiles.at(sums));
  }
}

llvm::Value* TensorEmitter::pack(Value* low, Value* high, ElementType from, ElementType to) {
  if (from == ElementType::f32) return to == ElementType::f16 ? math_.pack_f16(b_, low, high) : math_.pack_bf16(b_, low, high);
  auto* bits = b_.getInt16Ty();
  Value* word = b_.CreateZExt(b_.CreateBitCast(low, bits), b_.getInt32Ty());
  return b_.CreateOr(word, b_.CreateShl(b_.CreateZExt(b_.CreateBitCast(high, bits), b_.getInt32Ty()), 16));
}

/// A fragment becomes a first operand where it is: register j of a step holds elements 2j and 2j + 1 of the same columns. In halves, the
/// second ones lie behind the first ones of all rows.
void TensorEmitter::narrow(int k, bool masked) {
  const TensorOp& op = this->op(k);
  const TileAccess& access = op.op.reads[static_cast<std::size_t>(op.form.a)];
  const ElementType type = plan_->buffer(access.buffer).type;
  Tests tests = masked && op.mask_a ? masks(op, op.mask) : Tests{};
  Values words, rests;
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int word = 0; word < op.k / 4; ++word) {
      Value* pair[2];
      for (int e = 0; e < 2; ++e) {
        const FragmentPlace place{tile, word / 2, word % 2, e};
        pair[e] = fragment_value(access.buffer, place);
        if (Value* test = inside(op, tests, place))
          pair[e] = b_.CreateSelect(test, pair[e], llvm::Constant::getNullValue(pair[e]->getType()));
      }
      if (op.halves == 1) {
        words.push_back(pack(pair[0], pair[1], type, op.product_type));
        continue;
      }
      const auto [word_of, rest] = math_.halves(b_, op.product_type == ElementType::f16, {pair[0], pair[1]});
      words.push_back(word_of);
      rests.push_back(rest);
    }
  }
  words.insert(words.end(), rests.begin(), rests.end());
  state_.operands[k] = std::move(words);
}

/// The warp's first row of a tile of 64.
llvm::Value* TensorEmitter::first_row_of(int tile) {
  Value* row = b_.CreateAdd(b_.CreateMul(sharer_, constant(plan_->row_tiles * kWarpgroupRows)), constant(tile * kWarpgroupRows));
  return b_.CreateAdd(row, b_.CreateShl(warp_, 4));
}

/// Of the warp's rows of the circular buffer's current tile, 16 columns from 16 * step: by ldmatrix, for which lane l gives the address of row l%8 of
/// matrix l/8. Word 2p + h is of column pair p and row half h, as in a fragment.
TensorEmitter::Values TensorEmitter::row_matrices(int ring, int tile, int step) {
  const CircularBuffer& info = this->ring(ring);
  Value* matrix = b_.CreateLShr(lane_, 3);
  Value* within = b_.CreateAdd(b_.CreateAnd(lane_, constant(7)), b_.CreateShl(b_.CreateAnd(matrix, constant(1)), 3));
  Value* row = b_.CreateAdd(first_row_of(tile), within);
  Value* line = b_.CreateAdd(stage_address(ring, state_.positions.at(ring).first), b_.CreateMul(row, constant(kSwizzleBytes)));
  const int block = step * kProductStep / kBlockColumns, chunk = step * kProductStep % kBlockColumns / 8;
  Value* piece = b_.CreateXor(b_.CreateAdd(b_.CreateLShr(matrix, 1), constant(chunk)), b_.CreateAnd(row, constant(7)));
  return ptx_.load_matrices(
      b_.CreateAdd(b_.CreateAdd(line, constant(block * info.rows * kSwizzleBytes)), b_.CreateShl(piece, 4)));
}

void TensorEmitter::take_registers(int ring) {
  if (this->ring(ring).scheduler) return take_work_tile(ring);
  Values words;
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int step = 0; step < this->ring(ring).columns / kProductStep; ++step) {
      const Values loaded = row_matrices(ring, tile, step);
      words.insert(words.end(), loaded.begin(), loaded.end());
    }
  }
  ptx_.pin(words);
  state_.held[ring] = std::move(words);
}

}  // namespace nestor::nvptx
