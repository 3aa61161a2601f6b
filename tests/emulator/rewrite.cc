// Rewrites kernels: accesses to memory, and registers of products under way.
#include "emulator/rewrite.h"

#include "support/error.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/InlineAsm.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include <algorithm>
#include <set>

namespace nestor::emulation {
namespace {

const llvm::InlineAsm* assembly_of(const llvm::Value* value) {
  const auto* call = llvm::dyn_cast<llvm::CallInst>(value);
  return call == nullptr ? nullptr : llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand());
}

/// All that only passes values of products' sums on, and who uses them otherwise.
class RegistersUnderWay {
 public:
  explicit RegistersUnderWay(llvm::Function& function) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) {
      if (is_product(&instruction)) follow(instruction);
    }
  }
  std::vector<llvm::Use*> uses;

 private:
  void follow(llvm::Value& value) {
    if (!seen_.insert(&value).second) return;
    for (llvm::Use& use : value.uses()) {
      llvm::User* user = use.getUser();
      const bool passes =
          llvm::isa<llvm::PHINode, llvm::SelectInst, llvm::ExtractValueInst, llvm::InsertValueInst, llvm::FreezeInst>(user);
      if (passes) {
        follow(*user);
      } else if (!is_product(user) && !is_pin(user)) {
        uses.push_back(&use);
      }
    }
  }
  std::set<llvm::Value*> seen_;
};

void trace(const llvm::Value* value, std::set<const llvm::Value*>& seen, std::vector<const llvm::Instruction*>& found) {
  if (!seen.insert(value).second || !llvm::isa<llvm::Instruction>(value)) return;
  if (const auto* extract = llvm::dyn_cast<llvm::ExtractValueInst>(value)) {
    const auto* from = llvm::dyn_cast<llvm::CallInst>(extract->getAggregateOperand());
    if (from != nullptr && is_product(from)) return;
    if (from != nullptr && is_pin(from)) return trace(from->getArgOperand(extract->getIndices()[0]), seen, found);
    return trace(extract->getAggregateOperand(), seen, found);
  }
  if (is_pin(value)) return trace(llvm::cast<llvm::CallInst>(value)->getArgOperand(0), seen, found);
  if (const auto* phi = llvm::dyn_cast<llvm::PHINode>(value)) {
    for (const llvm::Value* incoming : phi->incoming_values()) trace(incoming, seen, found);
    return;
  }
  if (llvm::isa<llvm::BitCastInst, llvm::FreezeInst>(value))
    return trace(llvm::cast<llvm::Instruction>(value)->getOperand(0), seen, found);
  found.push_back(llvm::cast<llvm::Instruction>(value));
}

bool is_private(const llvm::Value* pointer) { return llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(pointer, 0)); }

/// Tells the machine of a load or a store.
void announce(Calls& calls, llvm::Instruction& instruction) {
  llvm::Value* pointer = nullptr;
  llvm::Type* type = nullptr;
  if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&instruction)) {
    pointer = load->getPointerOperand();
    type = load->getType();
  } else if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&instruction)) {
    pointer = store->getPointerOperand();
    type = store->getValueOperand()->getType();
  } else {
    return;
  }
  if (is_private(pointer)) return;
  llvm::IRBuilder<>& b = calls.builder();
  b.SetInsertPoint(&instruction);
  const llvm::DataLayout& layout = instruction.getModule()->getDataLayout();
  llvm::Value* plain = pointer->getType()->getPointerAddressSpace() == 0 ? pointer : b.CreateAddrSpaceCast(pointer, b.getPtrTy());
  calls.call("access", {plain, b.getInt64(layout.getTypeStoreSize(type)),
                        calls.number(llvm::isa<llvm::StoreInst>(instruction) ? 1 : 0), calls.site(instruction)});
}

void refuse_unknown(const llvm::Instruction& instruction) {
  const bool atomic = llvm::isa<llvm::AtomicRMWInst, llvm::AtomicCmpXchgInst, llvm::FenceInst>(instruction);
  const auto* moved = llvm::dyn_cast<llvm::MemIntrinsic>(&instruction);
  if (atomic || (moved != nullptr && !is_private(moved->getDest())))
    internal_error("emulator: unknown instruction {}", instruction.getOpcodeName());
}

}  // namespace

Sites number_instructions(llvm::Module& module) {
  Sites sites;
  std::uint32_t next = 0;
  for (llvm::Function& function : module) {
    for (llvm::Instruction& instruction : llvm::instructions(function)) sites[&instruction] = ++next;
  }
  return sites;
}

bool is_product(const llvm::Value* value) {
  const llvm::InlineAsm* assembly = assembly_of(value);
  return assembly != nullptr && llvm::StringRef(assembly->getAsmString()).starts_with("wgmma.mma_async");
}

bool is_pin(const llvm::Value* value) {
  const llvm::InlineAsm* assembly = assembly_of(value);
  return assembly != nullptr && llvm::StringRef(assembly->getAsmString()).empty();
}

std::vector<const llvm::Instruction*> register_sources(const llvm::CallInst& product) {
  std::vector<const llvm::Instruction*> found;
  std::set<const llvm::Value*> seen;
  for (const llvm::Value* argument : product.args()) {
    if (!argument->getType()->isIntegerTy(64))
      trace(argument, seen, found);  // descriptors are no registers that products wait for
  }
  return found;
}

void rewrite_kernel(llvm::Function& function, const Sites& sites) {
  Calls calls(function, sites);
  llvm::IRBuilder<>& b = calls.builder();
  std::vector<llvm::Instruction*> all;
  std::set<const llvm::Instruction*> sources;
  for (llvm::Instruction& instruction : llvm::instructions(function)) {
    all.push_back(&instruction);
    refuse_unknown(instruction);
    if (!is_product(&instruction)) continue;
    const auto& product = llvm::cast<llvm::CallInst>(instruction);
    for (const llvm::Instruction* source : register_sources(product)) {
      sources.insert(source);
      calls.sources[&product].push_back(sites.at(source));
    }
  }
  for (llvm::Use* use : RegistersUnderWay(function).uses) {
    auto* user = llvm::cast<llvm::Instruction>(use->getUser());
    b.SetInsertPoint(user);
    use->set(calls.call("settled", b.getFloatTy(), {use->get(), calls.site(*user)}));
  }
  for (llvm::Instruction* instruction : all) {
    announce(calls, *instruction);
    if (sources.count(instruction) != 0 && !instruction->isTerminator()) {
      b.SetInsertPoint(instruction->getNextNode());
      calls.call("defined", {calls.site(*instruction), calls.site(*instruction)});
    }
    auto* call = llvm::dyn_cast<llvm::CallInst>(instruction);
    if (call == nullptr) continue;
    b.SetInsertPoint(call);
    if (const llvm::InlineAsm* assembly = assembly_of(call)) {
      replace_assembly(calls, *call, assembly->getAsmString());
    } else if (const llvm::Function* callee = call->getCalledFunction();
               callee != nullptr && callee->getName().starts_with("llvm.nvvm.")) {
      replace_intrinsic(calls, *call, callee->getName().drop_front(10).str());
    } else {
      continue;
    }
    call->eraseFromParent();
  }
}

// ---- calls

llvm::Value* Calls::call(const std::string& name, llvm::Type* result, const std::vector<llvm::Value*>& arguments) {
  std::vector<llvm::Type*> types;
  std::vector<llvm::Value*> plain;
  for (llvm::Value* argument : arguments) {
    const bool far = argument->getType()->isPointerTy() && argument->getType()->getPointerAddressSpace() != 0;
    plain.push_back(far ? b_.CreateAddrSpaceCast(argument, b_.getPtrTy()) : argument);
    types.push_back(plain.back()->getType());
  }
  return b_.CreateCall(
      function_.getParent()->getOrInsertFunction("emulated_" + name, llvm::FunctionType::get(result, types, false)), plain);
}

llvm::Value* Calls::scratch(const std::string& name, unsigned bytes) {
  llvm::AllocaInst*& memory = scratch_[name];
  if (memory == nullptr) {
    llvm::IRBuilder<> entry(&function_.getEntryBlock(), function_.getEntryBlock().begin());
    memory = entry.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), bytes));
    memory->setAlignment(llvm::Align(16));
  }
  if (llvm::cast<llvm::ArrayType>(memory->getAllocatedType())->getNumElements() < bytes)
    internal_error("emulator: {} needs {} bytes", name, bytes);
  return memory;
}

void Calls::put(llvm::Value* memory, unsigned offset, llvm::Value* value) {
  b_.CreateAlignedStore(value, b_.CreateConstGEP1_32(b_.getInt8Ty(), memory, offset), llvm::Align(1));
}

llvm::Value* Calls::get(llvm::Value* memory, unsigned offset, llvm::Type* type) {
  return b_.CreateAlignedLoad(type, b_.CreateConstGEP1_32(b_.getInt8Ty(), memory, offset), llvm::Align(1));
}

void Calls::results_from(llvm::CallInst& call, llvm::Value* memory) {
  auto* whole = llvm::dyn_cast<llvm::StructType>(call.getType());
  if (whole == nullptr) return call.replaceAllUsesWith(get(memory, 0, call.getType()));
  std::map<unsigned, llvm::Value*> parts;
  const auto part = [&](unsigned k) {
    llvm::Value*& value = parts[k];
    if (value == nullptr) value = get(memory, 4 * k, whole->getElementType(k));
    return value;
  };
  std::vector<llvm::ExtractValueInst*> extracts;
  for (llvm::User* user : call.users()) {
    if (auto* extract = llvm::dyn_cast<llvm::ExtractValueInst>(user)) extracts.push_back(extract);
  }
  for (llvm::ExtractValueInst* extract : extracts) extract->replaceAllUsesWith(part(extract->getIndices()[0]));
  if (std::all_of(call.user_begin(), call.user_end(),
                  [](const llvm::User* user) { return llvm::isa<llvm::ExtractValueInst>(user); })) {
    call.replaceAllUsesWith(llvm::PoisonValue::get(whole));
    return;
  }
  llvm::Value* result = llvm::PoisonValue::get(whole);
  for (unsigned k = 0; k < whole->getNumElements(); ++k) result = b_.CreateInsertValue(result, part(k), {k});
  call.replaceAllUsesWith(result);
}

llvm::Value* Calls::constants(const std::vector<std::uint32_t>& values) {
  llvm::Constant* data = llvm::ConstantDataArray::get(b_.getContext(), values);
  return new llvm::GlobalVariable(*function_.getParent(), data->getType(), true, llvm::GlobalValue::PrivateLinkage, data);
}

}  // namespace nestor::emulation
