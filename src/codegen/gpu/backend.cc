// GPU back end: plans kernels, builds their IR, and turns it into PTX.
#include "codegen/gpu/backend.h"

#include "codegen/gpu/kernel/workspace.h"
#include "codegen/gpu/kernel_builder.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/tile/program_recipe.h"

#include "support/debug.h"
#include "support/error.h"

#include <fmt/format.h>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>
#include <mutex>

namespace nestor {
namespace {

std::unique_ptr<llvm::TargetMachine> make_machine(const std::string& architecture, bool clusters) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  const std::string triple = "nvptx64-nvidia-cuda";
  std::string message;
  const llvm::Target* registered = llvm::TargetRegistry::lookupTarget(triple, message);
  if (registered == nullptr) internal_error("LLVM has no NVPTX target: {}", message);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  const char* version = clusters ? "+ptx81" : "+ptx80";  // what blocks of a cluster send each other needs 8.1
  return std::unique_ptr<llvm::TargetMachine>(registered->createTargetMachine(
      triple, architecture, version, options, llvm::Reloc::PIC_, {}, llvm::CodeGenOptLevel::Default));
}

void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(&machine, tuning);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager graphs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(graphs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, graphs, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

std::string text_of(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

std::string ptx_of(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    internal_error("LLVM cannot write PTX");
  passes.run(module);
  return text.str().str();
}

void complete(std::vector<LaunchNode>& nodes, const std::map<std::string, nvptx::BuiltKernel>& kernels) {
  for (LaunchNode& node : nodes) {
    complete(node.children, kernels);
    if (node.kind != LaunchNode::Kind::kernel) continue;
    const nvptx::BuiltKernel& kernel = kernels.at(node.symbol);
    node.block = {kernel.threads, 1, 1};
    node.shared_bytes = kernel.shared_bytes;
    node.params = kernel.params;
  }
}

}  // namespace

CompiledNvptx compile_nvptx(const TileProgram& program, const NvptxTarget& target) {
  return compile_planned(program, plan_kernels(program, target));
}

CompiledNvptx compile_planned(const TileProgram& program, std::shared_ptr<const KernelPlans> plans) {
  const DebugTimer timer("GPU code");
  const NvptxTarget& target = plans->target;
  const auto any_kernel = [&](const auto& holds) {
    return std::any_of(plans->launches.kernels.begin(), plans->launches.kernels.end(), holds);
  };
  const bool clusters = any_kernel([](const nvptx::KernelPlan& kernel) { return kernel.shape.cluster > 1; });
  // Instructions of the warpgroups exist on this very architecture only, which the name's last letter says.
  const bool tensor = any_kernel([](const nvptx::KernelPlan& kernel) { return kernel.shape.warpgroups > 0; });
  const std::string architecture = fmt::format("sm_{}{}", target.sm, tensor && target.sm >= 90 ? "a" : "");
  const auto machine = make_machine(architecture, clusters);
  llvm::LLVMContext context;
  llvm::Module module(program.name, context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  std::map<std::string, nvptx::BuiltKernel> kernels;
  for (const PlannedKernel& kernel : plans->kernels)
    kernels[kernel.kernel->symbol] = nvptx::build_kernel(module, kernel, plans->launches.program);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream)) internal_error("invalid code for {}: {}\n{}", program.name, problem, text_of(module));
  optimise(module, *machine);
  CompiledNvptx result;
  if (target.keep_ir) result.ir = text_of(module);
  result.kernel.architecture = architecture;
  result.kernel.code = ptx_of(module, *machine);
  debug_log(DebugSwitch::ptx, result.kernel.code);
  result.kernel.recipe = recipe_of(program);
  result.kernel.recipe.target = "nvptx";
  nvptx::workspace_layout(plans->launches.program, result.kernel.recipe.workspace_bytes);
  result.kernel.recipe.launches = plans->launches.launches;
  complete(result.kernel.recipe.launches, kernels);
  result.certificate = plans->certificate;
  result.plans = std::move(plans);
  return result;
}

GpuCertificate certify_kernels(const TileProgram& program, const NvptxTarget& target) {
  return plan_kernels(program, target)->certificate;
}

std::string describe_kernels(const TileProgram& program, const NvptxTarget& target) {
  return describe(*plan_kernels(program, target));
}

}  // namespace nestor
