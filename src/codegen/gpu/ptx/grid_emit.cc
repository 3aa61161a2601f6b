// The order in which blocks take the points of a grid.
#include "codegen/gpu/ptx/grid_emit.h"

#include <cstdint>

namespace nestor::nvptx {
namespace {

using llvm::Value;

/// The last two loops by groups. Returns what is left of the number for the loops before.
Value* decode_group(llvm::IRBuilder<>& b, Value* number, const GridLoops& loops, int raster_group) {
  const std::size_t row_loop = loops.count - 2, column_loop = loops.count - 1;
  Value *rows = loops.iterations(row_loop), *columns = loops.iterations(column_loop);
  Value* most = b.getInt32(static_cast<std::uint32_t>(raster_group));
  Value *place = number, *rest = number;
  if (row_loop > 0) {
    Value* both = b.CreateMul(rows, columns);
    place = b.CreateURem(number, both);
    rest = b.CreateUDiv(number, both);
  }
  Value* tiles = b.CreateMul(columns, most);
  Value* first = b.CreateMul(b.CreateUDiv(place, tiles), most);
  Value* within = b.CreateURem(place, tiles);
  Value* left = b.CreateSub(rows, first);
  Value* size = b.CreateSelect(b.CreateICmpULT(left, most), left, most);
  loops.take_index(column_loop, b.CreateUDiv(within, size));
  loops.take_index(row_loop, b.CreateAdd(first, b.CreateURem(within, size)));
  return rest;
}

}  // namespace

void decode_grid(llvm::IRBuilder<>& b, Value* number, const GridLoops& loops, int raster_group) {
  Value* rest = number;
  std::size_t left = loops.count;
  if (raster_group > 1 && loops.count > 1) {
    rest = decode_group(b, number, loops, raster_group);
    left -= 2;
  }
  for (std::size_t k = left; k-- > 0;) {
    Value* index = rest;
    if (k > 0) {
      Value* count = loops.iterations(k);
      index = b.CreateURem(rest, count);
      rest = b.CreateUDiv(rest, count);
    }
    loops.take_index(k, index);
  }
}

}  // namespace nestor::nvptx
