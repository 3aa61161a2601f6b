// Sums over memory for few elements of a tile. A thread notes those of its elements that need one. Warps without any go on; in the others a thread
// goes from one to the next: code is that of one sum, whatever the tile.
#include "codegen/gpu/mma/emit/tensor_emitter.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

#include <algorithm>

namespace nestor::nvptx {
namespace {

constexpr int kWord = 32;        ///< elements that one word tells of
constexpr int kTermsAtOnce = 8;  ///< of a sum, whose loads are under way at once

llvm::MDNode* unroll_hint(llvm::LLVMContext& context, int count) {
  llvm::Metadata* number =
      llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<std::uint64_t>(count)));
  llvm::Metadata* parts[] = {nullptr,
                             llvm::MDNode::get(context, {llvm::MDString::get(context, "llvm.loop.unroll.count"), number})};
  llvm::MDNode* node = llvm::MDNode::getDistinct(context, parts);
  node->replaceOperandWith(0, node);
  return node;
}

}  // namespace

void TensorEmitter::seldom_sum(const TensorOp& op) {
  const int buffer = op.op.write.buffer;
  const Fragment& fragment = plan_->fragments.at(buffer);
  const int count = plan_->row_tiles * fragment.columns / 2, pairs = std::min(pairs_of(op), fragment.columns / 8);
  Values words(static_cast<std::size_t>((count + kWord - 1) / kWord), constant(0));
  Value* any = constant(0);
  for (int tile = 0; tile < plan_->row_tiles; ++tile) {
    for (int half = 0; half < 2; ++half) {
      for (int pair = 0; pair < pairs; ++pair) {
        for (int e = 0; e < 2; ++e) {
          const FragmentPlace place{tile, pair, half, e};
          const int number = number_in(fragment, place);
          Value* holds = element(op, op.seldom->condition, place);
          Value* bit = b_.getInt32(std::uint32_t{1} << number % kWord);
          Value*& word = words[static_cast<std::size_t>(number / kWord)];
          word = b_.CreateOr(
              word, op.seldom->adds ? b_.CreateSelect(holds, bit, constant(0)) : b_.CreateSelect(holds, constant(0), bit));
        }
      }
    }
  }
  for (Value* word : words) any = b_.CreateOr(any, word);
  Value* some = b_.CreateICmpNE(any, constant(0));
  choose(b_.CreateIntrinsic(llvm::Intrinsic::nvvm_vote_any_sync, {}, {constant(-1), some}), [&] {
    Values values = state_.tiles.at(buffer);
    for (std::size_t w = 0; w < words.size(); ++w) seldom_elements(op, values, static_cast<int>(w) * kWord, words[w]);
    state_.tiles[buffer] = std::move(values);
    ptx_.warp_barrier();
  });
}

/// Adds their sums to the values whose bits are set, of those from number `first` on.
void TensorEmitter::seldom_elements(const TensorOp& op, Values& values, int first, Value* bits) {
  llvm::LLVMContext& context = b_.getContext();
  auto* inside = llvm::BasicBlock::Create(context, "element", &function_);
  auto* after = llvm::BasicBlock::Create(context, "after", &function_);
  llvm::BasicBlock* from = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpNE(bits, constant(0)), inside, after);
  b_.SetInsertPoint(inside);
  llvm::PHINode* left = b_.CreatePHI(bits->getType(), 2);
  left->addIncoming(bits, from);
  const auto begin = static_cast<std::size_t>(first), end = std::min(begin + kWord, values.size());
  std::vector<llvm::PHINode*> phis;
  for (std::size_t k = begin; k < end; ++k) {
    phis.push_back(b_.CreatePHI(values[k]->getType(), 2));
    phis.back()->addIncoming(values[k], from);
  }
  Value* bit = b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, left, b_.getTrue());
  Value* sum = direct_sum(op, b_.CreateAdd(bit, constant(first)));
  Values now;
  for (std::size_t k = 0; k < phis.size(); ++k) {
    Value* mine = b_.CreateICmpEQ(bit, constant(static_cast<int>(k)));
    now.push_back(b_.CreateSelect(mine, b_.CreateFAdd(phis[k], sum), phis[k]));
  }
  Value* next = b_.CreateAnd(left, b_.CreateSub(left, constant(1)));
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  left->addIncoming(next, latch);
  for (std::size_t k = 0; k < phis.size(); ++k) phis[k]->addIncoming(now[k], latch);
  b_.CreateCondBr(b_.CreateICmpNE(next, constant(0)), inside, after);
  b_.SetInsertPoint(after);
  for (std::size_t k = 0; k < phis.size(); ++k) {
    llvm::PHINode* result = b_.CreatePHI(now[k]->getType(), 2);
    result->addIncoming(values[begin + k], from);
    result->addIncoming(now[k], latch);
    values[begin + k] = result;
  }
}

/// The op's dims at the thread's element of this number (number_in).
void TensorEmitter::set_number(const TensorOp& op, Value* number) {
  const int of_tile = plan_->fragments.at(op.op.write.buffer).columns / 2;
  Value *tile = b_.CreateUDiv(number, constant(of_tile)), *inside = b_.CreateURem(number, constant(of_tile));
  Value *pair = b_.CreateUDiv(inside, constant(4)), *half = b_.CreateAnd(b_.CreateLShr(inside, 1), constant(1)),
        *second = b_.CreateAnd(inside, constant(1));
  set_start(op);
  const auto set = [&](int dim, Value* value) {
    if (dim >= 0) environment_[op.op.dims[static_cast<std::size_t>(dim)].var] = b_.CreateZExt(value, b_.getInt64Ty());
  };
  Value* distance = b_.CreateAdd(b_.CreateMul(tile, constant(kWarpgroupRows)), b_.CreateMul(half, constant(8)));
  if (plan_->pack > 1) distance = b_.CreateUDiv(distance, constant(plan_->pack));
  set(op.row, b_.CreateAdd(pack_at(first_row_), distance));
  set(op.column, b_.CreateAdd(first_column_, b_.CreateAdd(b_.CreateMul(pair, constant(8)), second)));
  if (op.pack >= 0) environment_[op.op.dims[static_cast<std::size_t>(op.pack)].var] = place_in_pack();
}

/// Is there an element of the op where its dims stand?
llvm::Value* TensorEmitter::is_point(const TensorOp& op) {
  Value* point = b_.getTrue();
  for (const int d : {op.row, op.column, op.pack}) {
    if (d < 0) continue;
    const OpDim& dim = op.op.dims[static_cast<std::size_t>(d)];
    Value* at = environment_.at(dim.var);
    point = b_.CreateAnd(point, b_.CreateICmpSGE(at, integer(dim.lower)));
    point = b_.CreateAnd(point, b_.CreateICmpSLT(at, integer(dim.upper)));
  }
  if (!op.op.guard.defined()) return point;
  return b_.CreateAnd(point, emit_condition(b_, op.op.guard, [&](const std::string& name) { return lookup(name); }));
}

/// The sum of all terms of the thread's element of this number; 0 where that is no point of the op.
llvm::Value* TensorEmitter::direct_sum(const TensorOp& op, Value* number) {
  set_number(op, number);
  const OpDim& k = op.op.dims[static_cast<std::size_t>(op.form.k)];
  Value *lower = integer(k.lower), *upper = b_.CreateSelect(is_point(op), integer(k.upper), lower);
  llvm::LLVMContext& context = b_.getContext();
  auto* inside = llvm::BasicBlock::Create(context, "term", &function_);
  auto* after = llvm::BasicBlock::Create(context, "after", &function_);
  llvm::BasicBlock* from = b_.GetInsertBlock();
  llvm::Constant* zero = llvm::ConstantFP::getZero(b_.getFloatTy());
  b_.CreateCondBr(b_.CreateICmpSLT(lower, upper), inside, after);
  b_.SetInsertPoint(inside);
  llvm::PHINode *at = b_.CreatePHI(lower->getType(), 2), *sum = b_.CreatePHI(b_.getFloatTy(), 2);
  at->addIncoming(lower, from);
  sum->addIncoming(zero, from);
  environment_[k.var] = at;
  ScalarLeaves leaves;
  leaves.read = [&](int ordinal, Value* wanted) {
    const TileAccess& access = op.op.reads.at(static_cast<std::size_t>(ordinal));
    return load_where(wanted, access, argument_address(access));
  };
  leaves.index = [&](int ordinal) {
    return b_.CreateTrunc(integer(op.op.indices.at(static_cast<std::size_t>(ordinal))), b_.getInt32Ty());
  };
  leaves.scalar = [&](const std::string& name, ElementType) { return arguments_.scalars.at(name); };
  Value* more = b_.CreateFAdd(sum, emit_scalar(b_, math_, op.seldom->term, leaves));
  Value* next = b_.CreateNSWAdd(at, b_.getInt64(1));
  llvm::BasicBlock* latch = b_.GetInsertBlock();
  at->addIncoming(next, latch);
  sum->addIncoming(more, latch);
  b_.CreateCondBr(b_.CreateICmpSLT(next, upper), inside, after)
      ->setMetadata(llvm::LLVMContext::MD_loop, unroll_hint(context, kTermsAtOnce));
  b_.SetInsertPoint(after);
  llvm::PHINode* result = b_.CreatePHI(b_.getFloatTy(), 2);
  result->addIncoming(zero, from);
  result->addIncoming(more, latch);
  return result;
}

}  // namespace nestor::nvptx
