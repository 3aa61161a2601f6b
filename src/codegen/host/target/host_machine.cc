// LLVM set-up for the host: the pass pipeline, object emission.
#include "codegen/host/target/host_machine.h"

#include "support/error.h"

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopDeletion.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <mutex>

namespace nestor {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

void initialize_x86() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

llvm::FunctionPassManager function_passes() {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::EarlyCSEPass(true));
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::InstCombinePass());
  llvm::LoopPassManager hoist;
  hoist.addPass(llvm::LICMPass(llvm::LICMOptions()));
  hoist.addPass(llvm::LoopDeletionPass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(hoist), /*UseMemorySSA=*/true));
  // Only the loops that carry an unroll request.
  passes.addPass(llvm::LoopUnrollPass(llvm::LoopUnrollOptions(2, /*OnlyWhenForced=*/true)));
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  passes.addPass(llvm::GVNPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::ADCEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  return passes;
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> make_host_machine(const HostTarget& target) {
  initialize_x86();
  std::string error;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (llvm_target == nullptr) internal_error("LLVM has no x86-64 target: {}", error);
  // Asked before the machine is made: that would print a warning of its own.
  const std::unique_ptr<llvm::MCSubtargetInfo> known(llvm_target->createMCSubtargetInfo(kTriple, "", ""));
  if (!known->isCPUStringValid(target.cpu)) {
    user_error("LLVM knows no x86-64 CPU named \"{}\"; detect_host() gives the name of this one", target.cpu);
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  std::unique_ptr<llvm::TargetMachine> machine(llvm_target->createTargetMachine(
      kTriple, target.cpu, target.features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  if (!machine) internal_error("LLVM cannot make code for the CPU {}", target.cpu);
  return machine;
}

bool has_feature(const llvm::TargetMachine& machine, const std::string& feature) {
  return machine.getMCSubtargetInfo()->checkFeatures("+" + feature);
}

void optimize_host_module(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(function_passes()));
  passes.addPass(llvm::GlobalDCEPass());
  passes.run(module, modules);
}

std::string emit_host_code(const llvm::Module& module, llvm::TargetMachine& machine, bool assembly) {
  llvm::SmallString<0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  const std::unique_ptr<llvm::Module> copy = llvm::CloneModule(module);
  const auto kind = assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, kind))
    internal_error("LLVM cannot emit code for {}", machine.getTargetCPU().str());
  passes.run(*copy);
  return std::string(buffer);
}

void check_no_undefined_symbols(const std::string& object) {
  auto parsed = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, "kernel"));
  if (!parsed) internal_error("the emitted object is no ELF file: {}", llvm::toString(parsed.takeError()));
  std::string names;
  for (const llvm::object::SymbolRef& symbol : (*parsed)->symbols()) {
    auto flags = symbol.getFlags();
    auto name = symbol.getName();
    if (!flags || !name) internal_error("the emitted object has an unreadable symbol table");
    if ((*flags & llvm::object::SymbolRef::SF_Undefined) != 0 && !name->empty())
      names += (names.empty() ? "" : ", ") + name->str();
  }
  if (!names.empty()) internal_error("generated host code refers to undefined symbols: {}", names);
}

}  // namespace nestor
