// From a block's number to its place in a grid.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstddef>
#include <functional>

namespace nestor::nvptx {

/// What decode_grid() asks of its caller, by loop.
struct GridLoops {
  std::size_t count = 0;
  std::function<llvm::Value*(std::size_t)> iterations;        ///< of a loop, as i32
  std::function<void(std::size_t, llvm::Value*)> take_index;  ///< of its iteration, as i32; last loop first
};

/// The iteration of each loop that the work tile with this number (i32) has: the last loop is the fastest. `raster_group` > 1: the
/// iterations of the last loop but one come in groups of so many, and a group has all iterations of the last loop before the next group
/// follows; within one, the last loop is the slower. So blocks at work at once share operands of either loop. The last group may be smaller.
void decode_grid(llvm::IRBuilder<>& b, llvm::Value* number, const GridLoops& loops, int raster_group);

}  // namespace nestor::nvptx
