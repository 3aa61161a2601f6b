// Parses, rewrites and compiles a module for this processor.
#include "emulator/module.h"

#include "emulator/rewrite.h"
#include "support/element_codec.h"
#include "support/error.h"

#include <llvm/AsmParser/Parser.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/ReplaceConstant.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <bit>
#include <cstdint>

namespace nestor::emulation {
namespace {

template <class T>
T take(llvm::Expected<T> value) {
  if (!value) internal_error("emulator: {}", llvm::toString(value.takeError()));
  return std::move(*value);
}

void check(llvm::Error error) {
  if (error) internal_error("emulator: {}", llvm::toString(std::move(error)));
}

std::unique_ptr<llvm::Module> parse(const std::string& ir, llvm::LLVMContext& context) {
  llvm::SMDiagnostic diagnostic;
  auto module = llvm::parseAssemblyString(ir, diagnostic, context);
  if (module == nullptr) internal_error("emulator: {}", diagnostic.getMessage().str());
  return module;
}

/// Every kernel asks once where its block's shared memory is.
void place_shared(llvm::Module& module) {
  constexpr unsigned kSharedSpace = 3;
  std::vector<llvm::GlobalVariable*> all;
  for (llvm::GlobalVariable& global : module.globals()) {
    if (global.getAddressSpace() == kSharedSpace) all.push_back(&global);
  }
  llvm::IRBuilder<> b(module.getContext());
  const auto base = module.getOrInsertFunction("emulated_shared_memory", llvm::FunctionType::get(b.getPtrTy(), {}, false));
  for (llvm::GlobalVariable* shared : all) {
    llvm::convertUsersOfConstantsToInstructions({shared});
    std::map<llvm::Function*, llvm::Value*> places;
    for (llvm::Use& use : llvm::make_early_inc_range(shared->uses())) {
      llvm::Function* function = llvm::cast<llvm::Instruction>(use.getUser())->getFunction();
      llvm::Value*& place = places[function];
      if (place == nullptr) {
        b.SetInsertPoint(&function->getEntryBlock(), function->getEntryBlock().begin());
        place = b.CreateAddrSpaceCast(b.CreateCall(base), shared->getType());
      }
      use.set(place);
    }
    shared->eraseFromParent();
  }
}

/// void run_<kernel>(void** params): loads each parameter and calls the kernel.
void add_trampoline(llvm::Module& module, llvm::Function& kernel) {
  llvm::IRBuilder<> b(module.getContext());
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy()}, false);
  auto* function = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "run_" + kernel.getName().str(), module);
  b.SetInsertPoint(llvm::BasicBlock::Create(module.getContext(), "entry", function));
  std::vector<llvm::Value*> values;
  for (llvm::Argument& argument : kernel.args()) {
    llvm::Value* slot = b.CreateLoad(b.getPtrTy(), b.CreateConstGEP1_64(b.getPtrTy(), function->getArg(0), argument.getArgNo()));
    values.push_back(argument.hasByValAttr() ? slot : b.CreateLoad(argument.getType(), slot));
  }
  for (llvm::Argument& argument : kernel.args()) argument.removeAttr(llvm::Attribute::ByVal);
  b.CreateCall(&kernel, values);
  b.CreateRetVoid();
}

std::map<std::string, int> residents_of(const llvm::Module& module) {
  std::map<std::string, int> residents;
  const llvm::NamedMDNode* annotations = module.getNamedMetadata("nvvm.annotations");
  for (unsigned k = 0; annotations != nullptr && k < annotations->getNumOperands(); ++k) {
    const llvm::MDNode* node = annotations->getOperand(k);
    const auto* key = llvm::dyn_cast<llvm::MDString>(node->getOperand(1));
    if (key == nullptr || key->getString() != "minctasm") continue;
    residents[llvm::mdconst::extract<llvm::Function>(node->getOperand(0))->getName().str()] =
        static_cast<int>(llvm::mdconst::extract<llvm::ConstantInt>(node->getOperand(2))->getSExtValue());
  }
  return residents;
}

/// A sum of a product is one operation on a GPU, whoever else wants the product: x c - x c is what the product was rounded by.
void fuse_products(llvm::Function& function) {
  const auto product_of = [](llvm::Value* value) {
    auto* operation = llvm::dyn_cast<llvm::BinaryOperator>(value);
    return operation != nullptr && operation->getOpcode() == llvm::Instruction::FMul && operation->hasAllowContract() ? operation
                                                                                                                      : nullptr;
  };
  std::vector<llvm::BinaryOperator*> sums;
  for (llvm::Instruction& instruction : llvm::instructions(function)) {
    const bool sum = instruction.getOpcode() == llvm::Instruction::FAdd || instruction.getOpcode() == llvm::Instruction::FSub;
    if (sum && instruction.getType()->getScalarType()->isFloatTy() && instruction.hasAllowContract())
      sums.push_back(llvm::cast<llvm::BinaryOperator>(&instruction));
  }
  for (llvm::BinaryOperator* sum : sums) {
    const bool minus = sum->getOpcode() == llvm::Instruction::FSub;
    llvm::Value *x = sum->getOperand(0), *y = sum->getOperand(1);
    llvm::BinaryOperator *left = product_of(x), *right = product_of(y);
    if (left == nullptr && right == nullptr) continue;
    llvm::IRBuilder<> b(sum);
    const auto opposite = [&](llvm::Value* value, bool when) { return when ? b.CreateFNeg(value) : value; };
    llvm::Value* fused = left != nullptr ? b.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()},
                                                             {left->getOperand(0), left->getOperand(1), opposite(y, minus)})
                                         : b.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()},
                                                             {opposite(right->getOperand(0), minus), right->getOperand(1), x});
    sum->replaceAllUsesWith(fused);
    sum->eraseFromParent();
  }
}

/// GPUs have one NaN, whatever made it: all bits set but the sign's. Its bits matter where integers are made of them.
void make_one_nan(llvm::Function& function) {
  const auto computes = [](const llvm::Value* value) {
    const auto* intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(value);
    return llvm::isa<llvm::BinaryOperator, llvm::FPTruncInst, llvm::FPExtInst>(value) ||
           (intrinsic != nullptr && !intrinsic->mayReadFromMemory());
  };
  std::vector<llvm::BitCastInst*> reads;
  for (llvm::Instruction& instruction : llvm::instructions(function)) {
    auto* cast = llvm::dyn_cast<llvm::BitCastInst>(&instruction);
    if (cast != nullptr && cast->getSrcTy()->isFPOrFPVectorTy() && cast->getType()->isIntOrIntVectorTy() &&
        computes(cast->getOperand(0)))
      reads.push_back(cast);
  }
  for (llvm::BitCastInst* read : reads) {
    llvm::IRBuilder<> b(read);
    llvm::Value* value = read->getOperand(0);
    llvm::Type* element = value->getType()->getScalarType();
    llvm::APInt bits = llvm::APInt::getSignedMaxValue(element->getScalarSizeInBits());
    llvm::Constant* nan = llvm::ConstantFP::get(value->getType(), llvm::APFloat(element->getFltSemantics(), bits));
    read->setOperand(0, b.CreateSelect(b.CreateFCmpUNO(value, value), nan, value));
  }
}

}  // namespace

/// What LLVM calls to round f32 to bf16 where the processor has no instruction for it; libgcc 12 has no such function. The result is in the
/// low 16 bits of the register of a float.
float round_to_bf16(float value) { return std::bit_cast<float>(std::uint32_t{double_to_bfloat(value)}); }

class Module::Code {
 public:
  explicit Code(const std::string& ir, std::map<std::string, int>& residents) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto context = std::make_unique<llvm::LLVMContext>();
    auto module = parse(ir, *context);
    residents = residents_of(*module);
    auto machine = take(llvm::orc::JITTargetMachineBuilder::detectHost());
    machine.setCodeGenOptLevel(llvm::CodeGenOptLevel::None);
    jit_ = take(llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(std::move(machine)).create());
    adapt(*module);
    llvm::orc::SymbolMap symbols;
    for (const auto& [name, address] : instruction_symbols())
      symbols[jit_->mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                              llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    symbols[jit_->mangleAndIntern("__truncsfbf2")] = {llvm::orc::ExecutorAddr::fromPtr(&round_to_bf16),
                                                      llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    check(jit_->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(symbols))));
    check(jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
  }

  Kernel kernel(const std::string& symbol) { return take(jit_->lookup("run_" + symbol)).toPtr<Kernel>(); }

 private:
  void adapt(llvm::Module& module) {
    const Sites sites = number_instructions(module);
    module.setTargetTriple(jit_->getTargetTriple().str());
    module.setDataLayout(jit_->getDataLayout());
    std::vector<llvm::Function*> kernels;
    for (llvm::Function& function : module) {
      if (function.isDeclaration()) continue;
      function.setCallingConv(llvm::CallingConv::C);
      function.removeFnAttr("target-cpu");
      function.removeFnAttr("target-features");
      fuse_products(function);
      kernels.push_back(&function);
    }
    for (llvm::Function* kernel : kernels) {
      rewrite_kernel(*kernel, sites);
      make_one_nan(*kernel);  // it adds instructions, which have no number
    }
    place_shared(module);
    for (llvm::Function* kernel : kernels) add_trampoline(module, *kernel);
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    if (llvm::verifyModule(module, &stream)) internal_error("emulator: {}", problem);
  }

  std::unique_ptr<llvm::orc::LLJIT> jit_;
};

Module::Module(const std::string& ir) : ir_(ir), code_(std::make_unique<Code>(ir, residents_)) {}
Module::~Module() = default;

Module::Kernel Module::kernel(const std::string& symbol) { return code_->kernel(symbol); }

int Module::residents(const std::string& symbol) const {
  const auto found = residents_.find(symbol);
  return found == residents_.end() ? 0 : found->second;
}

std::string Module::text_of(Site site) const {
  llvm::LLVMContext context;
  const auto module = parse(ir_, context);
  for (const auto& [instruction, number] : number_instructions(*module)) {
    if (number != site) continue;
    std::string text;
    llvm::raw_string_ostream stream(text);
    instruction->print(stream);
    text.erase(0, text.find_first_not_of(' '));
    if (text.size() > 300) text = text.substr(0, 300) + "...";
    return "`" + text + "` (instruction " + std::to_string(site) + ")";
  }
  return "an instruction";
}

}  // namespace nestor::emulation
