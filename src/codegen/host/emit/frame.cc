// Loops, branches, memory and alias facts in the IR of host kernels.
#include "codegen/host/emit/frame.h"

#include "support/error.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>

namespace nestor {

using llvm::Value;

HostModule::HostModule(const TileProgram& the_program, const HostShape& the_shape, const MathEmitter& the_math,
                       llvm::Module& the_module)
    : program(the_program), shape(the_shape), math(the_math), module(the_module) {
  llvm::MDBuilder metadata(context());
  llvm::MDNode* domain = metadata.createAnonymousAliasScopeDomain("nestor");
  const std::size_t count = program.buffers.size() + 2;
  std::vector<llvm::Metadata*> scopes;
  scopes.reserve(count);
  for (std::size_t k = 0; k < count; ++k) scopes.push_back(metadata.createAnonymousAliasScope(domain));
  for (std::size_t k = 0; k < count; ++k) {
    scope.push_back(llvm::MDNode::get(context(), {scopes[k]}));
    std::vector<llvm::Metadata*> others;
    for (std::size_t other = 0; other < count; ++other) {
      if (other != k) others.push_back(scopes[other]);
    }
    no_alias.push_back(llvm::MDNode::get(context(), others));
  }
}

void HostModule::finish(llvm::Function& function, const HostTarget& target) const {
  function.addFnAttr("target-cpu", target.cpu);
  function.addFnAttr("target-features", target.features);
  // Some CPUs are tuned for 256 bits; vectors here are chosen by this back end.
  function.addFnAttr("prefer-vector-width", std::to_string(target.vector_bytes * 8));
  function.addFnAttr("min-legal-vector-width", std::to_string(target.vector_bytes * 8));
  // Loops that fill or copy must not become calls of memset or memcpy.
  function.addFnAttr("no-builtins");
  function.addFnAttr(llvm::Attribute::NoUnwind);
  function.setUWTableKind(llvm::UWTableKind::None);
}

Frame::Frame(HostModule& the_host, llvm::Function* the_function) : host(the_host), function(the_function), b(the_host.context()) {
  b.SetInsertPoint(llvm::BasicBlock::Create(host.context(), "entry", function));
  llvm::FastMathFlags flags;
  flags.setAllowContract(true);
  b.setFastMathFlags(flags);
}

IntLookup Frame::lookup() const {
  return [this](const std::string& name) -> Value* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second;
  };
}

llvm::AllocaInst* Frame::entry_alloca(llvm::Type* type, std::int64_t count, unsigned alignment) {
  llvm::BasicBlock& entry = function->getEntryBlock();
  llvm::IRBuilder<> at(&entry, entry.begin());
  llvm::Type* whole = count == 1 ? type : llvm::ArrayType::get(type, static_cast<std::uint64_t>(count));
  llvm::AllocaInst* memory = at.CreateAlloca(whole);
  memory->setAlignment(llvm::Align(alignment));
  return memory;
}

llvm::BasicBlock* Frame::block(const char* name) { return llvm::BasicBlock::Create(host.context(), name, function); }

namespace {

/// Unrolling happens only where it is asked for.
void annotate_unroll(llvm::BranchInst* latch, std::int64_t unroll) {
  llvm::LLVMContext& context = latch->getContext();
  llvm::SmallVector<llvm::Metadata*, 2> parts{nullptr};
  if (unroll > 1) {
    llvm::Metadata* count = llvm::ConstantAsMetadata::get(
        llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), static_cast<std::uint64_t>(unroll)));
    parts.push_back(llvm::MDNode::get(context, {llvm::MDString::get(context, "llvm.loop.unroll.count"), count}));
  } else {
    parts.push_back(llvm::MDNode::get(context, {llvm::MDString::get(context, "llvm.loop.unroll.disable")}));
  }
  llvm::MDNode* loop = llvm::MDNode::getDistinct(context, parts);
  loop->replaceOperandWith(0, loop);
  latch->setMetadata(llvm::LLVMContext::MD_loop, loop);
}

}  // namespace

void Frame::loop(Value* lower, Value* upper, std::int64_t step, const std::function<void(Value*)>& body, std::int64_t unroll) {
  const auto low = constant_of(lower), high = constant_of(upper);
  if (low && high) {
    if (*low >= *high) return;
    if (*high - *low <= step) return body(lower);
  }
  llvm::BasicBlock* inside = block("loop");
  llvm::BasicBlock* after = block("end");
  b.CreateCondBr(b.CreateICmpSLT(lower, upper), inside, after);
  llvm::BasicBlock* origin = b.GetInsertBlock();
  b.SetInsertPoint(inside);
  llvm::PHINode* iv = b.CreatePHI(b.getInt64Ty(), 2);
  iv->addIncoming(lower, origin);
  body(iv);
  Value* next = b.CreateNSWAdd(iv, i64(step));
  iv->addIncoming(next, b.GetInsertBlock());
  annotate_unroll(b.CreateCondBr(b.CreateICmpSLT(next, upper), inside, after), unroll);
  b.SetInsertPoint(after);
}

void Frame::branch(Value* condition, const std::function<void()>& then, const std::function<void()>& otherwise) {
  if (const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(condition)) {
    if (!constant->isZero()) return then();
    return otherwise ? otherwise() : void();
  }
  llvm::BasicBlock* yes = block("then");
  llvm::BasicBlock* after = block("endif");
  llvm::BasicBlock* no = otherwise ? block("else") : after;
  b.CreateCondBr(condition, yes, no);
  b.SetInsertPoint(yes);
  then();
  b.CreateBr(after);
  if (otherwise) {
    b.SetInsertPoint(no);
    otherwise();
    b.CreateBr(after);
  }
  b.SetInsertPoint(after);
}

Value* Frame::minimum(Value* a, Value* c) {
  const auto x = constant_of(a), y = constant_of(c);
  return x && y ? i64(std::min(*x, *y)) : b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, a, c);
}

Value* Frame::maximum(Value* a, Value* c) {
  const auto x = constant_of(a), y = constant_of(c);
  return x && y ? i64(std::max(*x, *y)) : b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, a, c);
}

void Frame::tag(llvm::Instruction* access, int buffer) const {
  const auto index = static_cast<std::size_t>(buffer);
  access->setMetadata(llvm::LLVMContext::MD_alias_scope, host.scope[index]);
  access->setMetadata(llvm::LLVMContext::MD_noalias, host.no_alias[index]);
  const bool is_buffer = index < host.program.buffers.size();
  if (is_buffer && llvm::isa<llvm::LoadInst>(access) && host.program.buffers[index].role == TensorRole::input &&
      host.program.buffers[index].memory == Memory::argument) {
    access->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(host.context(), {}));
  }
}

Value* Frame::invariant_load(llvm::Type* type, Value* address) {
  llvm::LoadInst* load = b.CreateLoad(type, address);
  load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(host.context(), {}));
  return load;
}

llvm::Type* memory_type(llvm::LLVMContext& context, ElementType type) {
  return type == ElementType::f16 ? llvm::Type::getInt16Ty(context) : element_type(context, type);
}

Value* to_register(llvm::IRBuilderBase& b, Value* value, ElementType type) {
  if (type == ElementType::f16) return b.CreateBitCast(value, type_like(b.getHalfTy(), value));
  return from_element(b, value, type);
}

Value* to_memory(llvm::IRBuilderBase& b, Value* value, ElementType type) {
  if (type == ElementType::f16) return b.CreateBitCast(value, type_like(b.getInt16Ty(), value));
  return to_element(b, value, type);
}

Value* first_lanes(llvm::IRBuilderBase& b, Value* count, unsigned width) {
  Value* bounded = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, count, b.getInt64(width));
  Value* narrow = b.CreateVectorSplat(width, b.CreateTrunc(bounded, b.getInt32Ty()));
  std::vector<llvm::Constant*> lanes;
  lanes.reserve(width);
  for (unsigned lane = 0; lane < width; ++lane) lanes.push_back(b.getInt32(lane));
  return b.CreateICmpSLT(llvm::ConstantVector::get(lanes), narrow);
}

std::optional<std::int64_t> constant_of(Value* value) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value);
  if (constant == nullptr) return std::nullopt;
  return constant->getSExtValue();
}

}  // namespace nestor
