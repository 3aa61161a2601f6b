// Terms of which data says to which sum they belong: the lanes of a warp look at one term each, and what belongs to a sum of the block is added by
// the thread that has that sum, in memory. No two threads have a sum in common, and the terms of a sum have one order.
#include "codegen/gpu/simt/emit/block_emitter.h"
#include "codegen/tile/analysis/conditions.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <optional>
#include <vector>

namespace nestor::nvptx {

using llvm::Value;

namespace {

/// Terms of a lane whose places are loaded at once.
constexpr int kRoundsAtOnce = 8;
/// Terms that are loaded before any of them is added.
constexpr int kTermsAtOnce = 4;

/// The reduced dim that a thread runs through innermost; nothing: each has one value.
std::optional<std::size_t> innermost_reduced(const BlockOp& op) {
  std::optional<std::size_t> found;
  for (std::size_t d = 0; d < op.op.dims.size(); ++d) {
    if (op.op.dims[d].reduced && !single_valued(op.op.dims[d])) found = d;
  }
  return found;
}

}  // namespace

void BlockEmitter::emit_scattered(const BlockOp& op) {
  const bool of_columns = op.scattered->dim == op.column;
  if (op.op.initialize) {
    Value* none = neutral(op);
    for_own_elements(op, [&](int width, Slot slot) {
      const std::vector<Value*> values(static_cast<std::size_t>(width), none);
      for_serial(op, [](const OpDim& dim) { return !dim.reduced; }, [&] { store(op, values, op.sum_type(), slot); });
    });
  }
  const OpDim* chosen = &op.op.dims[static_cast<std::size_t>(op.scattered->dim)];
  const auto inner = innermost_reduced(op);
  const OpDim* last = inner ? &op.op.dims[*inner] : nullptr;
  // All loops around the terms are the same for all threads: they look together.
  for_serial(
      op, [&](const OpDim& dim) { return &dim != chosen && &dim != last; },
      [&] {
        look_for_terms(op, last, [&](std::vector<FoundTerm> terms) {
          for (FoundTerm& term : terms) term.counts = both(both(owner(op), term.counts), is_own_sum(op, term.place));
          if (of_columns || op.column < 0) return add_scattered(op, last, terms, 1);
          for_columns(op, [&](int width, int) { add_scattered(op, last, terms, width); });
        });
      });
}

/// The terms to their sums, at the current columns: all of them are loaded first, and added in order.
void BlockEmitter::add_scattered(const BlockOp& op, const OpDim* along, const std::vector<FoundTerm>& terms, int width) {
  const OpDim& chosen = op.op.dims[static_cast<std::size_t>(op.scattered->dim)];
  const ElementType type = op.sum_type(), stored = plan_->buffer(op.op.write.buffer).type;
  // Where nothing but the place decides, it is known by now.
  const bool decided = conditions_of_term(op.op.value, *op.op.reduction).size() == 1;
  const ScalarExpr& value = decided ? op.op.value.args()[1] : op.op.value;
  const auto for_terms = [&](const std::function<void(std::size_t)>& body) {
    for (int e = 0; e < width; ++e) {
      for (std::size_t k = 0; k < terms.size(); ++k) {
        when(terms[k].counts, [&] {
          if (along != nullptr) environment_[along->var] = terms[k].at;
          environment_[chosen.var] = terms[k].place;
          at_element(op, e, [&] { body(static_cast<std::size_t>(e) * terms.size() + k); });
        });
      }
    }
  };
  std::vector<Value*> loaded;
  for (std::size_t k = 0; k < static_cast<std::size_t>(width) * terms.size(); ++k)
    loaded.push_back(entry_alloca(register_type(b_.getContext(), type), "term"));
  for_terms([&](std::size_t k) { b_.CreateStore(convert(point_values(op, value, 1, {}), value.type(), type)[0], loaded[k]); });
  for_terms([&](std::size_t k) {
    Value* old = convert({load_element(op.op.write)}, stored, type)[0];
    Value* term = b_.CreateLoad(register_type(b_.getContext(), type), loaded[k]);
    Value* sum = emit_combine(b_, math_, *op.op.reduction, type, old, term);
    b_.CreateAlignedStore(emit_cast(b_, math_, sum, type, stored), address(op.op.write), llvm::Align(size_in_bytes(stored)));
  });
}

/// Calls `body` with the terms along the dim (or the only one) that have a sum in the block, in order, a few at once, each with its place.
void BlockEmitter::look_for_terms(const BlockOp& op, const OpDim* along,
                                  const std::function<void(std::vector<FoundTerm>)>& body) {
  const OpDim& dim = op.op.dims[static_cast<std::size_t>(op.scattered->dim)];
  Value *lowest = integer(dim.lower), *sums = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, extent(dim), b_.getInt64(0));
  if (along == nullptr) {
    Value* place = chosen_place(op, *op.scattered, {});
    return body({{b_.CreateICmpULT(b_.CreateNSWSub(place, lowest), sums), nullptr, place}});
  }
  Value *lower = integer(along->lower), *upper = integer(along->upper);
  Value *all = b_.getInt32(0xffffffffU), *lane = b_.CreateAnd(own_thread_, b_.getInt32(kWarpThreads - 1));
  loop(lower, upper, std::int64_t{kWarpThreads} * kRoundsAtOnce, [&](Value* base) {
    std::vector<Value*> starts, numbers, found, votes;
    for (int round = 0; round < kRoundsAtOnce; ++round) {  // all loads first
      starts.push_back(b_.CreateNSWAdd(base, b_.getInt64(static_cast<std::uint64_t>(round * kWarpThreads))));
      Value* own = b_.CreateNSWAdd(starts.back(), b_.CreateZExt(lane, b_.getInt64Ty()));
      Value* there = b_.CreateICmpSLT(own, upper);
      environment_[along->var] = b_.CreateSelect(there, own, lower);  // a term that there is
      Value* number = b_.CreateNSWSub(chosen_place(op, *op.scattered, {}), lowest);
      found.push_back(b_.CreateAnd(there, b_.CreateICmpULT(number, sums)));
      numbers.push_back(b_.CreateTrunc(number, b_.getInt32Ty()));
    }
    for (Value* each : found) votes.push_back(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_ballot_sync, {}, {all, each}));
    for (std::size_t round = 0; round < votes.size(); ++round) {
      for_votes(votes[round], [&](const std::vector<Vote>& counted) {
        std::vector<FoundTerm> terms;
        for (const Vote& vote : counted) {
          Value* place = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_shfl_sync_idx_i32, {},
                                            {all, numbers[round], vote.lane, b_.getInt32(kWarpThreads - 1)});
          terms.push_back({vote.counts, b_.CreateNSWAdd(starts[round], b_.CreateZExt(vote.lane, b_.getInt64Ty())),
                           b_.CreateNSWAdd(lowest, b_.CreateZExt(place, b_.getInt64Ty()))});
        }
        body(std::move(terms));
      });
    }
  });
}

/// Calls `body` with the lanes that voted, from the lowest on, a few at once: those that count come first.
void BlockEmitter::for_votes(Value* votes, const std::function<void(const std::vector<Vote>&)>& body) {
  llvm::LLVMContext& context = b_.getContext();
  auto* before = b_.GetInsertBlock();
  auto* header = llvm::BasicBlock::Create(context, "votes", &function_);
  auto* inside = llvm::BasicBlock::Create(context, "vote", &function_);
  auto* after = llvm::BasicBlock::Create(context, "counted", &function_);
  b_.CreateBr(header);
  b_.SetInsertPoint(header);
  llvm::PHINode* left = b_.CreatePHI(b_.getInt32Ty(), 2);
  left->addIncoming(votes, before);
  b_.CreateCondBr(b_.CreateICmpNE(left, b_.getInt32(0)), inside, after);
  b_.SetInsertPoint(inside);
  std::vector<Vote> taken;
  Value* rest = left;
  for (int k = 0; k < kTermsAtOnce; ++k) {
    Value* lowest = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, rest, b_.getFalse());
    taken.push_back({b_.CreateICmpNE(rest, b_.getInt32(0)), b_.CreateAnd(lowest, b_.getInt32(kWarpThreads - 1))});
    rest = b_.CreateAnd(rest, b_.CreateSub(rest, b_.getInt32(1)));
  }
  body(taken);
  left->addIncoming(rest, b_.GetInsertBlock());
  b_.CreateBr(header);
  b_.SetInsertPoint(after);
}

/// Is the sum at this place, which the block has, the thread's?
Value* BlockEmitter::is_own_sum(const BlockOp& op, Value* place) {
  const auto d = static_cast<std::size_t>(op.scattered->dim);
  if (op.roles[d] == DimRole::serial) return nullptr;
  const bool is_column = static_cast<int>(d) == op.column;
  const Position& own = position(op.layout);
  const auto number = [&](int value) { return b_.getInt64(static_cast<std::uint64_t>(value)); };
  Value* first = b_.CreateNSWSub(place, integer(op.op.dims[d].lower));
  Value* turn =
      b_.CreateURem(b_.CreateUDiv(first, number(is_column ? op.layout.vector : 1)), number(op.threads_along(op.scattered->dim)));
  return b_.CreateICmpEQ(turn, b_.CreateZExt(is_column ? own.lane : own.group, b_.getInt64Ty()));
}

}  // namespace nestor::nvptx
