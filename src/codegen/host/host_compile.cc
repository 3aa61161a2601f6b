// compile_host: tile program to relocatable object and launch recipe.
#include "codegen/host/emit/kernel_emitter.h"
#include "codegen/host/host_backend.h"
#include "codegen/host/repeated_values.h"
#include "codegen/host/repeated_values_proof.h"
#include "codegen/host/target/host_machine.h"
#include "codegen/tile/program_recipe.h"
#include "support/debug.h"
#include "support/error.h"

#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

namespace nestor {
namespace {

LaunchRecipe make_recipe(const TileProgram& program, const IntExpr& workspace_bytes) {
  LaunchRecipe recipe = recipe_of(program);
  recipe.target = "host";
  recipe.symbol = program.name;
  recipe.workspace_bytes = workspace_bytes;
  return recipe;
}

HostShape shape_of(const HostTarget& target, const llvm::TargetMachine& machine) {
  HostShape shape;
  if (target.vector_bytes != 16 && target.vector_bytes != 32 && target.vector_bytes != 64) {
    user_error("a host vector is 16, 32 or 64 bytes wide, not {}", target.vector_bytes);
  }
  shape.width = static_cast<unsigned>(target.vector_bytes) / 4;
  shape.registers = static_cast<unsigned>(target.vector_registers);
  shape.masked = has_feature(machine, "avx");
  shape.masked16 = has_feature(machine, "avx512bw") && has_feature(machine, "avx512vl");
  return shape;
}

std::string text_of(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

}  // namespace

CompiledHost compile_host(const TileProgram& given, const HostTarget& target, const HostOptions& options) {
  const DebugTimer timer("host code");
  const TileProgram program = with_repeated_values(given);
  prove_repeated_values(given, program);
  const std::unique_ptr<llvm::TargetMachine> machine = make_host_machine(target);
  llvm::LLVMContext context;
  llvm::Module module(program.name, context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);
  const HostMath math({.f16c = has_feature(*machine, "f16c"), .avx512 = has_feature(*machine, "avx512f")});
  HostModule host(program, shape_of(target, *machine), math, module);
  const IntExpr workspace = emit_kernel(host);
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) host.finish(function, target);
  }
  std::string problems;
  llvm::raw_string_ostream stream(problems);
  if (llvm::verifyModule(module, &stream))
    internal_error("kernel {} gives invalid LLVM IR: {}\n{}", program.name, stream.str(), text_of(module));
  optimize_host_module(module, *machine);

  CompiledHost out;
  out.kernel.architecture = "x86-64:" + target.cpu + ":" + target.features;
  out.kernel.code = emit_host_code(module, *machine, false);
  check_no_undefined_symbols(out.kernel.code);
  out.kernel.recipe = make_recipe(program, workspace);
  if (options.keep_ir) {
    out.ir = text_of(module);
    out.assembly = emit_host_code(module, *machine, true);
  }
  return out;
}

}  // namespace nestor
