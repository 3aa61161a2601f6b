// Rewrites one kernel of NVPTX IR for the machine (module.h).
#pragma once

#include <llvm/IR/Function.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>

#include <map>
#include <string>
#include <vector>

namespace nestor::emulation {

/// Numbers of instructions: from 1 on, through all functions of the module in order.
using Sites = std::map<const llvm::Instruction*, std::uint32_t>;
Sites number_instructions(llvm::Module& module);

/// Names under which the rewritten code calls instructions.h, and their addresses.
std::vector<std::pair<std::string, void*>> instruction_symbols();

/// Replaces everything that this processor does not have, and announces accesses to memory.
void rewrite_kernel(llvm::Function& function, const Sites& sites);

/// Helps to put calls of instructions.h in place of calls in one function.
class Calls {
 public:
  Calls(llvm::Function& function, const Sites& sites) : function_(function), sites_(sites), b_(function.getContext()) {}

  llvm::IRBuilder<>& builder() { return b_; }
  llvm::Value* number(std::int64_t value) { return b_.getInt32(static_cast<std::uint32_t>(value)); }
  llvm::Value* site(const llvm::Instruction& instruction) { return number(sites_.at(&instruction)); }
  llvm::Value* call(const std::string& name, llvm::Type* result, const std::vector<llvm::Value*>& arguments);
  llvm::Value* call(const std::string& name, const std::vector<llvm::Value*>& arguments) {
    return call(name, b_.getVoidTy(), arguments);
  }
  /// Stack memory for `bytes`; memory of one name is used again and again.
  llvm::Value* scratch(const std::string& name, unsigned bytes);
  void put(llvm::Value* memory, unsigned offset, llvm::Value* value);
  llvm::Value* get(llvm::Value* memory, unsigned offset, llvm::Type* type);
  /// The parts of the call's result are what lies in `memory`.
  void results_from(llvm::CallInst& call, llvm::Value* memory);
  llvm::Value* constants(const std::vector<std::uint32_t>& values);
  /// Of each product: numbers of the instructions that make the registers it reads.
  std::map<const llvm::CallInst*, std::vector<std::uint32_t>> sources;

 private:
  llvm::Function& function_;
  const Sites& sites_;
  llvm::IRBuilder<> b_;
  std::map<std::string, llvm::AllocaInst*> scratch_;
};

/// Puts something in place of assembly, or of an intrinsic of NVPTX; the call is left without users. Throws InternalError where it is unknown.
void replace_assembly(Calls& calls, llvm::CallInst& call, const std::string& text);
void replace_intrinsic(Calls& calls, llvm::CallInst& call, const std::string& name);

/// Is it an instruction of wgmma that multiplies; is it empty assembly, behind which registers are used anew?
bool is_product(const llvm::Value* value);
bool is_pin(const llvm::Value* value);
/// Instructions that make the registers which the product reads, through all that only passes them on.
std::vector<const llvm::Instruction*> register_sources(const llvm::CallInst& product);

}  // namespace nestor::emulation
