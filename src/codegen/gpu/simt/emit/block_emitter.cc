// Control flow, integer values and the walk over a block's tree.
#include "codegen/gpu/simt/emit/block_emitter.h"

#include "support/error.h"

#include <llvm/IR/IntrinsicsNVPTX.h>

namespace nestor::nvptx {

using llvm::Value;

namespace {

/// What a loop's last branch says: a node whose first operand is itself. 0: iterations stay single.
llvm::MDNode* unroll_hint(llvm::LLVMContext& context, int count) {
  llvm::Metadata* number =
      llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<std::uint64_t>(count)));
  llvm::Metadata* parts[] = {
      nullptr, count == 0 ? llvm::MDNode::get(context, {llvm::MDString::get(context, "llvm.loop.unroll.disable")})
                          : llvm::MDNode::get(context, {llvm::MDString::get(context, "llvm.loop.unroll.count"), number})};
  llvm::MDNode* node = llvm::MDNode::getDistinct(context, parts);
  node->replaceOperandWith(0, node);
  return node;
}

}  // namespace

BlockEmitter::BlockEmitter(llvm::IRBuilder<>& b, llvm::Function& function, KernelArguments arguments)
    : b_(b), function_(function), arguments_(std::move(arguments)) {
  llvm::FastMathFlags flags;
  flags.setAllowContract();  // a product and a sum become one fma
  flags.setNoSignedZeros();  // 0 + x is x
  b_.setFastMathFlags(flags);
  llvm::Module& module = *function.getParent();
  shared_ = module.getGlobalVariable("nestor_shared");
  if (shared_ == nullptr) {
    auto* type = llvm::ArrayType::get(b_.getInt8Ty(), 0);
    shared_ = new llvm::GlobalVariable(module, type, false, llvm::GlobalValue::ExternalLinkage, nullptr, "nestor_shared", nullptr,
                                       llvm::GlobalValue::NotThreadLocal, 3);
    shared_->setAlignment(llvm::Align(16));
  }
}

void BlockEmitter::emit(const BlockPlan& plan) {
  plan_ = &plan;
  math_ = NvptxMath(!has_half_arguments(*plan.program));
  environment_ = arguments_.integers;
  positions_.clear();
  registers_.clear();
  warp_leads_.clear();
  thread_ = b_.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x, {}, {});
  own_thread_ = thread_;
  cluster_started_ = plan.cluster == 1;
  if (plan.cluster > 1) {
    Value* before = b_.CreateMul(arguments_.cluster_rank, b_.getInt32(static_cast<std::uint32_t>(plan.threads)));
    thread_ = b_.CreateAdd(thread_, before);
    prepare_exchanges();
    // Relaxed: there is nothing to make visible but the barriers, which have a fence of their own.
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cluster_arrive_relaxed_aligned, {}, {});
  }
  if (plan.square_warps) thread_ = square_thread(plan.layout);
  for (const BlockOp& op : plan.ops) position(op.layout);
  visit(plan.root);
  await_cluster_start();
}

void BlockEmitter::visit(const BlockNode& node) {
  const auto children = [&] {
    for (const BlockNode& child : node.children) visit(child);
  };
  switch (node.kind) {
    case TileNode::Kind::sequence:
      if (node.advance >= 0) return advance(node.advance);
      if (node.commit) {
        b_.CreateIntrinsic(llvm::Intrinsic::nvvm_cp_async_commit_group, {}, {});
        return;
      }
      return children();
    case TileNode::Kind::op:
      return emit_op(plan_->ops[node.op]);
    case TileNode::Kind::condition:
      await_cluster_start();
      return when(condition(node.condition), children);
    case TileNode::Kind::loop: {
      if (node.once) {
        const auto outer = environment_;
        environment_[node.var] = integer(node.lower);
        children();
        environment_ = outer;
        return;
      }
      await_cluster_start();
      loop(integer(node.lower), integer(node.upper), node.step, [&](Value* index) {
        environment_[node.var] = index;
        children();
      });
      environment_.erase(node.var);
      return;
    }
  }
}

void BlockEmitter::loop(Value* lower, Value* upper, std::int64_t step, const IndexBody& body, int unroll) {
  llvm::LLVMContext& context = b_.getContext();
  auto* before = b_.GetInsertBlock();
  auto* header = llvm::BasicBlock::Create(context, "loop", &function_);
  auto* inside = llvm::BasicBlock::Create(context, "body", &function_);
  auto* after = llvm::BasicBlock::Create(context, "after", &function_);
  b_.CreateBr(header);
  b_.SetInsertPoint(header);
  llvm::PHINode* index = b_.CreatePHI(lower->getType(), 2);
  index->addIncoming(lower, before);
  b_.CreateCondBr(b_.CreateICmpSLT(index, upper), inside, after);
  b_.SetInsertPoint(inside);
  body(index);
  index->addIncoming(b_.CreateNSWAdd(index, llvm::ConstantInt::get(lower->getType(), static_cast<std::uint64_t>(step))),
                     b_.GetInsertBlock());
  llvm::BranchInst* back = b_.CreateBr(header);
  if (unroll != 1) back->setMetadata(llvm::LLVMContext::MD_loop, unroll_hint(context, unroll));
  b_.SetInsertPoint(after);
}

void BlockEmitter::when(Value* condition, const Body& body) { when_else(condition, body, nullptr); }

void BlockEmitter::when_else(Value* condition, const Body& yes, const Body& no) {
  if (condition == nullptr) return yes();
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (constant->isOne()) yes();
    if (constant->isZero() && no) no();
    return;
  }
  llvm::LLVMContext& context = b_.getContext();
  auto* then_block = llvm::BasicBlock::Create(context, "then", &function_);
  auto* after = llvm::BasicBlock::Create(context, "after", &function_);
  auto* else_block = no ? llvm::BasicBlock::Create(context, "else", &function_) : after;
  b_.CreateCondBr(condition, then_block, else_block);
  b_.SetInsertPoint(then_block);
  yes();
  b_.CreateBr(after);
  if (no) {
    b_.SetInsertPoint(else_block);
    no();
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(after);
}

Value* BlockEmitter::both(Value* a, Value* b) {
  if (a == nullptr) return b;
  return b == nullptr ? a : b_.CreateAnd(a, b);
}

void BlockEmitter::barrier() {
  if (plan_->cluster == 1) {
    b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier0, {}, {});
    return;
  }
  await_cluster_start();
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cluster_arrive_aligned, {}, {});
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cluster_wait_aligned, {}, {});
}

void BlockEmitter::await_cluster_start() {
  if (cluster_started_) return;
  cluster_started_ = true;
  b_.CreateIntrinsic(llvm::Intrinsic::nvvm_barrier_cluster_wait_aligned, {}, {});
}

Value* BlockEmitter::entry_alloca(llvm::Type* type, const llvm::Twine& name) {
  llvm::IRBuilder<> entry(&function_.getEntryBlock(), function_.getEntryBlock().begin());
  return entry.CreateAlloca(type, nullptr, name);
}

Value* BlockEmitter::variable(const std::string& name) {
  const auto found = environment_.find(name);
  return found == environment_.end() ? nullptr : found->second;
}

Value* BlockEmitter::integer(const IntExpr& expr) {
  return emit_int(b_, expr, [&](const std::string& name) { return variable(name); });
}

Value* BlockEmitter::condition(const IntExpr& expr) {
  return emit_condition(b_, expr, [&](const std::string& name) { return variable(name); });
}

Value* BlockEmitter::extent(const OpDim& dim) {
  if (const auto exact = exact_extent(dim)) return b_.getInt64(static_cast<std::uint64_t>(*exact));
  return b_.CreateNSWSub(integer(dim.upper), integer(dim.lower));
}

/// The thread's number where the warps are squares, one row of them after the other.
Value* BlockEmitter::square_thread(const Layout& layout) {
  const auto number = [&](int value) { return b_.getInt32(static_cast<std::uint32_t>(value)); };
  Value *warp = b_.CreateUDiv(thread_, number(kWarpThreads)), *place = b_.CreateURem(thread_, number(kWarpThreads));
  Value *lane = number(0), *group = number(0);
  int lane_bits = 0, group_bits = 0;
  for (int bit = 0; bit < 5; ++bit) {
    Value* value = b_.CreateAnd(b_.CreateLShr(place, number(bit)), number(1));
    const bool of_group = (kSquareGroupBits >> bit & 1) != 0;
    int& bits = of_group ? group_bits : lane_bits;
    Value*& sum = of_group ? group : lane;
    sum = b_.CreateOr(sum, b_.CreateShl(value, number(bits++)));
  }
  const int across = layout.lanes / kSquareLanes;
  lane = b_.CreateAdd(lane, b_.CreateMul(b_.CreateURem(warp, number(across)), number(kSquareLanes)));
  group = b_.CreateAdd(group, b_.CreateMul(b_.CreateUDiv(warp, number(across)), number(kSquareGroups)));
  return b_.CreateAdd(b_.CreateMul(group, number(layout.lanes)), lane);
}

const BlockEmitter::Position& BlockEmitter::position(const Layout& layout) {
  Position& result = positions_[{layout.lanes, layout.groups}];
  if (result.lane == nullptr) {
    result.lane = layout.groups == 1 ? thread_ : b_.CreateURem(thread_, b_.getInt32(static_cast<std::uint32_t>(layout.lanes)));
    result.group =
        layout.groups == 1 ? b_.getInt32(0) : b_.CreateUDiv(thread_, b_.getInt32(static_cast<std::uint32_t>(layout.lanes)));
  }
  return result;
}

}  // namespace nestor::nvptx
