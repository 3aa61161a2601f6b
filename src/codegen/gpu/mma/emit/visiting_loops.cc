// Loops that go past tiles which data hides. Each role reads the table of blocks for itself, one iteration ahead.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "support/error.h"

#include <llvm/IR/Intrinsics.h>

namespace nestor::nvptx {

/// i32: the first tile from `tile` on, which is not negative, that has a block with points. No block is beyond the last element.
llvm::Value* TensorEmitter::next_tile(const VisitedLoop& loop, Value* tile) {
  constexpr const char *kBlock = "#block", *kRows = "#rows";
  const auto least = [&](Value* a, Value* b) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, b); };
  const auto number = [&](std::int64_t value) { return b_.getInt64(static_cast<std::uint64_t>(value)); };
  const auto quotient = [&](Value* value, std::int64_t factor, std::int64_t divisor) {
    return b_.CreateUDiv(b_.CreateNSWMul(value, number(factor)), number(divisor));
  };
  Value* wide = b_.CreateZExt(tile, b_.getInt64Ty());
  environment_[kBlock] =
      least(quotient(wide, loop.blocks, loop.tiles), integer(plan_->buffer(loop.next.buffer).extents.back() - IntExpr(1)));
  TileAccess element = loop.next;
  element.index.push_back(IntExpr::variable(kBlock));
  Value* block = nullptr;
  for (int k = 0; k < loop.row_blocks; ++k) {
    if (loop.row_index >= 0) {
      const auto row = static_cast<std::size_t>(loop.row_index);
      const IntExpr& last = plan_->buffer(loop.next.buffer).extents[row];
      Value* end = least(integer(loop.last_rows), integer(last - IntExpr(1)));
      environment_[kRows] = least(integer(loop.next.index[row] + IntExpr(k)), end);
      element.index[row] = IntExpr::variable(kRows);
    }
    Value* found = load_element(element, argument_address(element));
    block = block == nullptr ? found : least(block, found);
  }
  Value* next = b_.CreateTrunc(quotient(b_.CreateZExt(block, b_.getInt64Ty()), loop.tiles, loop.blocks), b_.getInt32Ty());
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, next, tile);
}

/// i32: where the loop's tiles end.
llvm::Value* TensorEmitter::last_tile(const VisitedLoop& loop) { return b_.CreateTrunc(integer(loop.upper), b_.getInt32Ty()); }

void TensorEmitter::begin_visits(const VisitedLoop& loop) {
  Value* lower = b_.CreateTrunc(integer(loop.lower), b_.getInt32Ty());
  Value* first = next_tile(loop, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, lower, constant(0)));
  state_.visits[loop.var] = {first, first, first};
}

/// On to the next tile: what comes after it is asked for at once.
void TensorEmitter::go_on(const VisitedLoop& loop) {
  auto& [before, latest, upcoming] = state_.visits.at(loop.var);
  before = latest;
  latest = upcoming;
  environment_[loop.var] = b_.CreateSExt(latest, b_.getInt64Ty());
  upcoming = next_tile(loop, b_.CreateNSWAdd(latest, constant(1)));
}

void TensorEmitter::visit_if_any(const VisitedLoop& loop, const EventNode& node) {
  begin_visits(loop);
  choose(b_.CreateICmpSLT(state_.visits.at(loop.var)[2], last_tile(loop)), [&] { run_children(node, true); });
  state_.visits.erase(loop.var);
}

/// A part of the first iteration, which counts as 0, of the one before, or of the last one.
void TensorEmitter::visit(const VisitedLoop& loop, const EventNode& node) {
  Value* around = environment_[loop.var];
  if (node.lower.is_constant(0)) {
    go_on(loop);
  } else {
    const IntExpr distance = node.lower - IntExpr::variable(node.lower.uses(loop.count) ? loop.count : loop.var);
    if (affine_of(distance) != affine_of(IntExpr(-1)))
      internal_error("tensor kernel: {} is no tile that is known", node.lower.str());
    const auto& [before, latest, upcoming] = state_.visits.at(loop.var);
    environment_[loop.var] = b_.CreateSExt(node.lower.uses(loop.count) ? latest : before, b_.getInt64Ty());
  }
  run_children(node, true);
  environment_[loop.var] = around;
}

void TensorEmitter::visiting_loop(const VisitedLoop& loop, const EventNode& node) {
  const bool alone = !state_.visits.contains(loop.var);
  if (alone) begin_visits(loop);
  const auto upcoming = [&] { return state_.visits.at(loop.var)[2]; };
  const Advance next = [&](Value*) { return upcoming(); };
  counted_loop(loop.var, upcoming(), last_tile(loop), next, [&] {
    const State before = state_;
    go_on(loop);
    run_children(node, true);
    forget_private(before);
  });
  if (alone) state_.visits.erase(loop.var);
}

}  // namespace nestor::nvptx
