// Which work tiles the roles of a tensor kernel take.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "codegen/gpu/ptx/grid_emit.h"

#include <llvm/IR/Intrinsics.h>

namespace nestor::nvptx {

/// Calls `body` for each work tile of the grid that this block takes, with its coordinates in the environment.
void TensorEmitter::work_tiles(const Body& body) {
  if (!plan_->persistent()) return body();
  // A grid has fewer than 2^31 work tiles: 32 bits do, and their quotients are cheap.
  const auto narrow = [&](Value* value) { return b_.CreateTrunc(value, b_.getInt32Ty()); };
  Value* total = constant(1);
  std::vector<Value*> counts;
  for (const GridLoop& loop : plan_->kernel->grid) {
    counts.push_back(narrow(integer(loop.count)));
    total = b_.CreateNSWMul(total, counts.back());
  }
  work_tile_count_ = total;
  // In turns forwards and backwards over the blocks: where work falls along the work tiles, as under a triangular mask, each block so gets
  // its share of long and of short ones.
  Value *block = narrow(arguments_.integers.at(kBlockNumber)), *blocks = narrow(arguments_.integers.at(kBlockCount));
  Value* back = b_.CreateSub(b_.CreateSub(blocks, constant(1)), block);
  // With work tiles of its own a warpgroup starts at one of the first rounds, and leaves those of the others out.
  const bool own = !copying_ && plan_->ping_pong_tiles();
  const int stride = own ? plan_->warpgroups : 1;
  Value *after_even = stride % 2 == 1 ? back : block, *after_odd = stride % 2 == 1 ? block : back;
  const Advance next = [&](Value* work_tile) -> Value* {
    if (plan_->dynamic_scheduler()) return next_work_tile_;
    Value* round = b_.CreateUDiv(work_tile, blocks);
    Value* even = b_.CreateICmpEQ(b_.CreateAnd(round, constant(1)), constant(0));
    Value* first = b_.CreateNSWMul(b_.CreateAdd(round, constant(stride)), blocks);
    return b_.CreateNSWAdd(first, b_.CreateSelect(even, after_even, after_odd));
  };
  Value* start = block;
  if (own) {
    Value* even = b_.CreateICmpEQ(b_.CreateAnd(warpgroup_, constant(1)), constant(0));
    start = b_.CreateNSWAdd(b_.CreateNSWMul(warpgroup_, blocks), b_.CreateSelect(even, block, back));
  }
  counted_loop("$work_tile", start, total, next, [&] {
    Value* rest = environment_.at("$work_tile");
    Value* same = ptx_.assembly(b_.getInt32Ty(), "mov.b32 $0, $1;", "=r,r", {rest});
    work_tile_zero_ = b_.CreateLShr(same, constant(31));
    const auto count = [&](std::size_t k) { return b_.CreateAdd(counts[k], work_tile_zero_); };
    const auto take = [&](std::size_t k, Value* index) {
      const GridLoop& loop = plan_->kernel->grid[k];
      Value* distance =
          b_.CreateNSWMul(b_.CreateZExt(index, b_.getInt64Ty()), b_.getInt64(static_cast<std::uint64_t>(loop.step)));
      environment_[loop.var] = b_.CreateNSWAdd(integer(loop.lower), distance);
    };
    decode_grid(b_, rest, {counts.size(), count, take}, plan_->kernel->shape.raster_group);
    // Nothing but circular buffer positions lives from one work tile to the next.
    const auto forget = [&] {
      state_.tiles.clear();
      state_.operands.clear();
      state_.held.clear();
    };
    forget();
    if (plan_->dynamic_scheduler() && copying_) draw_work_tile();
    body();
    forget();
  });
}

/// The consumers' program for a warpgroup's own work tiles. The producer warp brings the tiles of all warpgroups in the order of their work
/// tiles, the same number for each: those of the others are passed over.
void TensorEmitter::own_work_tiles() {
  std::map<int, Value*> brought;
  for (const auto& [ring, position] : state_.positions) brought[ring] = tiles_brought(plan_->producer, ring);
  for (const auto& [ring, tiles] : brought) pass_over(ring, b_.CreateMul(tiles, warpgroup_));
  work_tiles([&] {
    run_children(plan_->consumer, true);
    for (const auto& [ring, tiles] : brought) pass_over(ring, b_.CreateMul(tiles, constant(plan_->warpgroups - 1)));
  });
}

/// The circular buffer's next tile is so many further.
void TensorEmitter::pass_over(int ring, Value* tiles) {
  auto& [stage, phase] = state_.positions.at(ring);
  Value *stages = constant(this->ring(ring).stages), *next = b_.CreateAdd(stage, tiles);
  stage = b_.CreateURem(next, stages);
  phase = b_.CreateXor(phase, b_.CreateAnd(b_.CreateUDiv(next, stages), constant(1)));
}

/// i32: tiles of the circular buffer that the producer's events below the node bring in one work tile.
llvm::Value* TensorEmitter::tiles_brought(const EventNode& node, int ring) {
  if (node.kind == EventNode::Kind::event) return constant(is(node, Event::Kind::load) && node.event.ring == ring ? 1 : 0);
  Value* tiles = constant(0);
  for (const EventNode& child : node.children) tiles = b_.CreateAdd(tiles, tiles_brought(child, ring));
  const auto narrow = [&](const IntExpr& bound) { return b_.CreateTrunc(integer(bound), b_.getInt32Ty()); };
  if (node.kind == EventNode::Kind::loop) {
    Value* trips = b_.CreateNSWSub(narrow(node.upper), narrow(node.lower));
    return b_.CreateMul(tiles, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, trips, constant(0)));
  }
  if (node.kind != EventNode::Kind::condition) return tiles;
  return b_.CreateSelect(emit_condition(b_, node.condition, [&](const std::string& name) { return lookup(name); }), tiles,
                         constant(0));
}

/// Every block claims once more than it finds work tiles, so the counter's last value is the number of work tiles less one, and whoever sees it
/// sets the counter back for the next launch.
void TensorEmitter::draw_work_tile() { drawn_ = ptx_.atomic_increment(arguments_.counter); }

void WgmmaEmitter::tell_work_tile(int ring) {
  Value* stage = state_.positions.at(ring).first;
  Value* blocks = b_.CreateTrunc(arguments_.integers.at(kBlockCount), b_.getInt32Ty());
  next_work_tile_ = b_.CreateAdd(drawn_, blocks);
  ptx_.reset_counter(arguments_.counter, b_.CreateICmpEQ(b_.CreateAdd(drawn_, constant(1)), work_tile_count_));
  ptx_.store_word(stage_address(ring, stage), next_work_tile_);
  ptx_.mbarrier_arrive(full_barrier(ring, stage), b_.getTrue());
  advance(ring);
}

void TensorEmitter::take_work_tile(int ring) {
  next_work_tile_ = ptx_.load_word(stage_address(ring, state_.positions.at(ring).first));
}

}  // namespace nestor::nvptx
