// Tensor kernels of compute capability 8.0: tiles by asynchronous copies of 16 bytes in the swizzle of tensor copies, operands by ldmatrix,
// products of a warp's registers. A product has ended for whoever uses its sums, so that waits for products are nothing here.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "codegen/gpu/mma/pipeline/tensor_roles.h"
#include "support/error.h"

#include <algorithm>
#include <bit>

namespace nestor::nvptx {
namespace {

constexpr int kPiece = 8;  ///< elements of one copy, and of a row of ldmatrix
constexpr int kWarpRows = 16;

/// Pieces of 16 bytes in a row of a tile's block of 64 columns.
int pieces_in(int columns, int block) {
  return static_cast<int>(ceil_div(std::min(columns - block * kBlockColumns, kBlockColumns), kPiece));
}

}  // namespace

void MmaEmitter::roles() {
  work_tiles([&] {
    for (int r = 0; r < static_cast<int>(plan_->circular_buffers.size()); ++r) {
      state_.positions[r] = {constant(0), constant(0)};
      state_.fills[r] = {constant(0), constant(0)};
    }
    run_children(plan_->consumer, true);
    state_.positions.clear();
    state_.fills.clear();
  });
}

void MmaEmitter::synchronise(const Event& event) {
  switch (event.kind) {
    case Event::Kind::load:
      return load(event.ring, event.count);
    case Event::Kind::commit_copies:
      return ptx_.commit_pieces();
    case Event::Kind::wait_copies:
      return ptx_.wait_pieces(event.count);
    case Event::Kind::barrier:
      return ptx_.block_barrier();
    case Event::Kind::release:
      return advance(event.ring);
    case Event::Kind::wait_full:
    case Event::Kind::wait_products:
      return;
    default:
      internal_error("tensor kernel: {} is no event of mma", name_of(event.kind));
  }
}

// ---- copies

/// The tile of `ahead` iterations later, if there is one.
void MmaEmitter::load(int number, int ahead) {
  const CircularBuffer& ring = this->ring(number);
  Value* exists = nullptr;
  Value* around = nullptr;
  if (ring.streamed) {
    around = environment_.at(ring.var);
    Value* value = b_.CreateNSWAdd(around, b_.getInt64(static_cast<std::uint64_t>(ahead)));
    exists = b_.CreateICmpSLT(value, integer(ring.upper));
    environment_[ring.var] = value;
  }
  Value* address = stage_address(number, state_.fills.at(number).first);
  const auto copy = [&] {
    const Source source = source_of(ring.buffer, ring.row_index, ring.origin);
    when(source.in_pieces, [&] { copy_pieces(ring, address, source); });
    when(b_.CreateNot(source.in_pieces), [&] { copy_elements(ring, address, source); });
  };
  if (exists != nullptr) {
    when(exists, copy);
    environment_[ring.var] = around;
  } else {
    copy();
  }
  advance(number, state_.fills.at(number));
}

MmaEmitter::Source MmaEmitter::source_of(int buffer, int row_index, const std::vector<IntExpr>& origin) {
  const Buffer& info = plan_->buffer(buffer);
  const auto wide = [&](std::int64_t value) { return b_.getInt64(static_cast<std::uint64_t>(value)); };
  const int dense = static_cast<int>(origin.size()) - 1;
  Source source;
  source.inside = b_.getTrue();
  Value* offset = integer(origin.back());
  Value* bits = b_.CreateOr(b_.CreatePtrToInt(arguments_.pointers.at(buffer), b_.getInt64Ty()), b_.CreateShl(offset, wide(1)));
  source.argument = arguments_.pointers.at(buffer);
  source.before = b_.CreateNeg(offset);
  source.columns = b_.CreateNSWSub(integer(info.extents[static_cast<std::size_t>(dense)]), offset);
  for (int p = 0; p < dense; ++p) {
    Value* index = integer(origin[static_cast<std::size_t>(p)]);
    Value* extent = integer(info.extents[static_cast<std::size_t>(p)]);
    Value* stride = arguments_.strides.at({buffer, p});
    offset = b_.CreateNSWAdd(offset, b_.CreateNSWMul(index, stride));
    bits = b_.CreateOr(bits, b_.CreateShl(stride, wide(1)));
    if (p == row_index) {
      source.first_row = index;
      source.rows = extent;
      source.row_stride = stride;
    } else {
      source.inside = b_.CreateAnd(source.inside, b_.CreateICmpULT(index, extent));
    }
  }
  source.data = b_.CreateGEP(b_.getInt16Ty(), arguments_.pointers.at(buffer), offset);
  Value* aligned = b_.CreateICmpEQ(b_.CreateAnd(bits, wide(2 * kPiece - 1)), wide(0));
  source.in_pieces = b_.CreateAnd(aligned, b_.CreateICmpSLE(source.before, wide(0)));
  return source;
}

/// Has the argument this row of the tile? 32 bits without sign: rows before the first are far behind the last.
llvm::Value* MmaEmitter::row_inside(const Source& source, Value* row) {
  Value* first = b_.CreateTrunc(source.first_row, b_.getInt32Ty());
  Value* inside = b_.CreateICmpULT(b_.CreateAdd(first, row), b_.CreateTrunc(source.rows, b_.getInt32Ty()));
  return b_.CreateAnd(source.inside, inside);
}

/// Neighbouring threads take neighbouring pieces of a row: eight of them write all banks.
void MmaEmitter::copy_pieces(const CircularBuffer& ring, Value* address, const Source& source) {
  for (int block = 0; block < ring.column_blocks(); ++block) {
    const int pieces = pieces_in(ring.columns, block);
    const auto width = static_cast<int>(std::bit_ceil(static_cast<unsigned>(pieces)));
    const int rows_at_once = plan_->warpgroups * kWarpgroupThreads / width;
    Value* piece = b_.CreateAnd(thread_, constant(width - 1));
    Value* first = b_.CreateLShr(thread_, std::countr_zero(static_cast<unsigned>(width)));
    Value* column = b_.CreateAdd(constant(block * kBlockColumns), b_.CreateMul(piece, constant(kPiece)));
    Value* bytes = constant(2 * kPiece);
    const auto* columns = llvm::dyn_cast<llvm::ConstantInt>(source.columns);
    if (columns == nullptr || columns->getSExtValue() < block * kBlockColumns + pieces * kPiece) {
      Value* left = b_.CreateNSWSub(source.columns, b_.CreateZExt(column, b_.getInt64Ty()));
      left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, left, b_.getInt64(0));
      left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(kPiece));
      bytes = b_.CreateShl(b_.CreateTrunc(left, b_.getInt32Ty()), 1);
    }
    Value* swizzled = b_.CreateXor(piece, b_.CreateAnd(first, constant(7)));
    Value* to = b_.CreateAdd(address, constant(block * ring.rows * kSwizzleBytes));
    to = b_.CreateAdd(to, b_.CreateAdd(b_.CreateMul(first, constant(kSwizzleBytes)), b_.CreateShl(swizzled, 4)));
    Value* offset = b_.CreateNSWMul(b_.CreateZExt(first, b_.getInt64Ty()), source.row_stride);
    offset = b_.CreateNSWAdd(offset, b_.CreateZExt(column, b_.getInt64Ty()));
    for (int start = 0; start < ring.rows; start += rows_at_once) {
      Value* row = b_.CreateAdd(first, constant(start));
      Value* moved = b_.CreateNSWMul(source.row_stride, b_.getInt64(static_cast<std::uint64_t>(start)));
      Value* from = b_.CreateGEP(b_.getInt16Ty(), source.data, b_.CreateNSWAdd(offset, moved));
      Value* present = b_.CreateSelect(row_inside(source, row), bytes, constant(0));
      const auto copy = [&] { ptx_.copy_piece(b_.CreateAdd(to, constant(start * kSwizzleBytes)), from, present); };
      Value* part = nullptr;
      if (pieces < width) part = b_.CreateICmpULT(piece, constant(pieces));
      if (start + rows_at_once > ring.rows) {
        Value* in_tile = b_.CreateICmpULT(row, constant(ring.rows));
        part = part == nullptr ? in_tile : b_.CreateAnd(part, in_tile);
      }
      part == nullptr ? copy() : when(part, copy);
    }
  }
}

/// Arguments whose rows do not start at multiples of 16 bytes: element by element, without being ahead of anything.
void MmaEmitter::copy_elements(const CircularBuffer& ring, Value* address, const Source& source) {
  const int columns = ring.columns;
  const auto next = [&](Value* at) { return b_.CreateAdd(at, constant(plan_->warpgroups * kWarpgroupThreads)); };
  counted_loop("$element", thread_, constant(ring.rows * columns), next, [&] {
    Value* at = environment_.at("$element");
    Value *row = b_.CreateUDiv(at, constant(columns)), *column = b_.CreateURem(at, constant(columns));
    // In the argument's own columns, and not before them: a tile may start anywhere.
    Value* wide = b_.CreateZExt(column, b_.getInt64Ty());
    Value* inside = b_.CreateAnd(row_inside(source, row), b_.CreateICmpSLT(wide, source.columns));
    inside = b_.CreateAnd(inside, b_.CreateICmpSGE(wide, source.before));
    Value* offset = b_.CreateNSWAdd(b_.CreateNSWMul(b_.CreateZExt(row, b_.getInt64Ty()), source.row_stride), wide);
    Value* from = b_.CreateSelect(inside, b_.CreateGEP(b_.getInt16Ty(), source.data, offset), source.argument);
    Value* element = b_.CreateSelect(inside, b_.CreateLoad(b_.getInt16Ty(), from), b_.getInt16(0));
    Value* piece = b_.CreateXor(b_.CreateAnd(b_.CreateLShr(column, 3), constant(7)), b_.CreateAnd(row, constant(7)));
    Value* line = b_.CreateAdd(b_.CreateMul(b_.CreateLShr(column, 6), constant(ring.rows)), row);
    Value* to = b_.CreateAdd(b_.CreateMul(line, constant(kSwizzleBytes)), b_.CreateShl(piece, 4));
    to = b_.CreateAdd(to, b_.CreateShl(b_.CreateAnd(column, constant(7)), 1));
    ptx_.store_half(b_.CreateAdd(address, to), element);
  });
}

// ---- products

/// Four words of the warp's 16 rows and 16 values of k.
MmaEmitter::Values MmaEmitter::first_operand(const TensorOp& op, int k, int tile, int step, int half) {
  if (Values held = held_operand(op, k, tile, step, half); !held.empty()) return held;
  if (!op.a_by_row) return row_matrices(op.a_ring, tile, step);
  // Memory runs along rows: blocks of 64 of them, each [k][64].
  const CircularBuffer& a = ring(op.a_ring);
  Value* matrix = b_.CreateLShr(lane_, 3);
  Value* within = b_.CreateAnd(lane_, constant(7));
  Value* line = b_.CreateAdd(b_.CreateShl(b_.CreateLShr(matrix, 1), 3), within);
  Value* piece = b_.CreateAdd(b_.CreateShl(warp_, 1), b_.CreateAnd(matrix, constant(1)));
  Value* block = b_.CreateAdd(b_.CreateMul(warpgroup_, constant(plan_->row_tiles)), constant(tile));
  Value* at = b_.CreateAdd(stage_address(op.a_ring, state_.positions.at(op.a_ring).first),
                           b_.CreateMul(block, constant(a.rows * kSwizzleBytes)));
  at = b_.CreateAdd(at, b_.CreateMul(line, constant(kSwizzleBytes)));
  at = b_.CreateAdd(at, b_.CreateShl(b_.CreateXor(piece, within), 4));
  return ptx_.load_matrices(b_.CreateAdd(at, constant(step * kProductStep * kSwizzleBytes)), 4, true);
}

/// Words of 16 values of k and the columns from `column` on: two of 8 columns, then two of the next 8 if there are any.
MmaEmitter::Values MmaEmitter::second_operand(const TensorOp& op, int column, int step) {
  const CircularBuffer& b = ring(op.b_ring);
  Value* matrix = b_.CreateLShr(lane_, 3);
  Value* within = b_.CreateAnd(lane_, constant(7));
  // Of four matrices, the first two are the 8 columns' low and high k, the others those of the next 8 columns.
  Value *high_k = b_.CreateAnd(matrix, constant(1)), *high_column = b_.CreateLShr(matrix, 1);
  if (column + 2 * kPiece > op.n) high_column = constant(0);
  const int k = step * kProductStep;
  Value *line = nullptr, *piece = nullptr;
  int offset = 0;
  if (op.b_by_column) {  // blocks of 64 columns, each [k][64]
    line = b_.CreateAdd(b_.CreateShl(high_k, 3), within);
    piece = b_.CreateAdd(high_column, constant(column % kBlockColumns / kPiece));
    offset = (column / kBlockColumns * b.rows + k) * kSwizzleBytes;
  } else {  // blocks of 64 k, each [columns][64]
    line = b_.CreateAdd(b_.CreateShl(high_column, 3), within);
    piece = b_.CreateAdd(high_k, constant(k % kBlockColumns / kPiece));
    offset = (k / kBlockColumns * b.rows + column) * kSwizzleBytes;
  }
  Value* own = b_.CreateAdd(b_.CreateMul(line, constant(kSwizzleBytes)), b_.CreateShl(b_.CreateXor(piece, within), 4));
  Value* at = b_.CreateAdd(stage_address(op.b_ring, state_.positions.at(op.b_ring).first), own);
  return ptx_.load_matrices(b_.CreateAdd(at, constant(offset)), column + 2 * kPiece > op.n ? 2 : 4, op.b_by_column);
}

void MmaEmitter::product(int k) {
  const TensorOp& op = this->op(k);
  Values& sums = state_.tiles[op.op.write.buffer];
  const std::size_t per_tile = static_cast<std::size_t>(op.n) / 2;
  const std::size_t count = per_tile * static_cast<std::size_t>(plan_->row_tiles);
  if (op.op.initialize) sums.assign(count, llvm::ConstantFP::get(b_.getFloatTy(), 0));
  if (sums.size() != count) internal_error("tensor kernel: {} adds to a tile that has no value", op.op.name);
  for (int step = 0; step < op.k / kProductStep; ++step) {
    std::vector<Values> first;
    first.reserve(static_cast<std::size_t>(plan_->row_tiles) * static_cast<std::size_t>(op.halves));
    for (int tile = 0; tile < plan_->row_tiles; ++tile) {
      for (int half = 0; half < op.halves; ++half) first.push_back(first_operand(op, k, tile, step, half));
    }
    for (int column = 0; column < op.n; column += 2 * kPiece) {
      const Values words = second_operand(op, column, step);
      for (int tile = 0; tile < plan_->row_tiles; ++tile) {
        for (std::size_t eight = 0; eight < words.size() / 2; ++eight) {
          const std::size_t at = per_tile * static_cast<std::size_t>(tile) + static_cast<std::size_t>(column) / 2 + 4 * eight;
          const auto part = sums.begin() + static_cast<std::ptrdiff_t>(at);
          for (int half = 0; half < op.halves; ++half) {
            const Values& rows = first[static_cast<std::size_t>(tile * op.halves + half)];
            const Values result =
                ptx_.mma(to_string(op.product_type), Values(part, part + 4), rows, {words[2 * eight], words[2 * eight + 1]});
            std::copy(result.begin(), result.end(), part);
          }
        }
      }
    }
  }
}

// ---- results

/// Each warp writes its rows to shared memory and reads them back by pieces, for stores of whole lines.
void MmaEmitter::store_tile(const TensorOp& op, int) {
  if (std::int64_t{pairs_of(op)} * kPiece != *end_bound(op.op.dims[static_cast<std::size_t>(op.column)]))
    return store_elements(op);
  set_start(op);
  const Source target = source_of(op.op.write.buffer, op.row_index, op.op.write.index);
  // The argument ends behind the tile, or between two pieces of it.
  Value* whole = b_.CreateICmpSGE(target.columns, b_.getInt64(static_cast<std::uint64_t>(pairs_of(op)) * kPiece));
  Value* rest = b_.CreateAnd(target.columns, b_.getInt64(kPiece - 1));
  Value* in_pieces = b_.CreateAnd(target.in_pieces, b_.CreateOr(whole, b_.CreateICmpEQ(rest, b_.getInt64(0))));
  when(in_pieces, [&] { store_pieces(op, target); });
  when(b_.CreateNot(in_pieces), [&] { store_elements(op); });
}

void MmaEmitter::store_pieces(const TensorOp& op, const Source& target) {
  Value* base = b_.CreateAdd(shared_, constant(static_cast<int>(op.stage_offset)));
  const int block_bytes = plan_->rows() * kSwizzleBytes, pairs = pairs_of(op);
  ptx_.warp_barrier();  // what lay here has been read
  Value* quad = b_.CreateLShr(lane_, 2);
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    Value* line = b_.CreateAdd(base, b_.CreateMul(b_.CreateAdd(first_row_of(tile), quad), constant(kSwizzleBytes)));
    line = b_.CreateAdd(line, b_.CreateShl(b_.CreateAnd(lane_, constant(3)), 2));
    for (int pair = 0; pair < pairs; pair += 2) {
      const Values words = tile_words(op, tile, pair);
      for (int w = 0; w < 4 && pair + w / 2 < pairs; ++w) {
        const int at = pair + w / 2;
        Value* piece = b_.CreateShl(b_.CreateXor(quad, constant(at % 8)), 4);
        const int offset = at / 8 * block_bytes + w % 2 * 8 * kSwizzleBytes;
        ptx_.store_word(b_.CreateAdd(b_.CreateAdd(line, piece), constant(offset)), words[static_cast<std::size_t>(w)]);
      }
    }
  }
  ptx_.warp_barrier();
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int block = 0; block * kBlockColumns < pairs * kPiece; ++block) {
      const int pieces = pieces_in(pairs * kPiece, block);
      // One piece a row would leave lanes beyond the warp's own rows.
      const int width = std::max(static_cast<int>(std::bit_ceil(static_cast<unsigned>(pieces))), kWarpThreads / kWarpRows);
      Value* piece = b_.CreateAnd(lane_, constant(width - 1));
      for (int start = 0; start < kWarpRows; start += kWarpThreads / width) {
        Value* within = b_.CreateAdd(b_.CreateLShr(lane_, std::countr_zero(static_cast<unsigned>(width))), constant(start));
        Value* row = b_.CreateAdd(first_row_of(tile), within);
        Value* at = b_.CreateAdd(base, b_.CreateMul(row, constant(kSwizzleBytes)));
        at = b_.CreateAdd(at, b_.CreateShl(b_.CreateXor(piece, b_.CreateAnd(within, constant(7))), 4));
        const Values words = ptx_.load_piece(b_.CreateAdd(at, constant(block * block_bytes)));
        Value* offset = b_.CreateNSWMul(b_.CreateZExt(row, b_.getInt64Ty()), target.row_stride);
        Value* column = b_.CreateAdd(b_.CreateMul(piece, constant(kPiece)), constant(block * kBlockColumns));
        Value* wide = b_.CreateZExt(column, b_.getInt64Ty());
        offset = b_.CreateNSWAdd(offset, wide);
        Value* inside = b_.CreateAnd(row_inside(target, row), b_.CreateICmpSLT(wide, target.columns));
        if (pieces < width) inside = b_.CreateAnd(inside, b_.CreateICmpULT(piece, constant(pieces)));
        ptx_.store_piece(b_.CreateGEP(b_.getInt16Ty(), target.data, offset), words, inside);
      }
    }
  }
}

}  // namespace nestor::nvptx
