// The LLVM target machine of a HostTarget, and what the code generator wants to know about it.
#pragma once

#include "codegen/host/target/host_target.h"

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

namespace nestor {

/// Position-independent code for `target`. Throws UserError when LLVM knows no such CPU.
std::unique_ptr<llvm::TargetMachine> make_host_machine(const HostTarget& target);

/// True when the machine has the feature, e.g. "avx2".
bool has_feature(const llvm::TargetMachine& machine, const std::string& feature);

/// Optimises a module whose loops are vector code already: cleans up, hoists, promotes; adds no vectorisation of its own.
void optimize_host_module(llvm::Module& module, llvm::TargetMachine& machine);

/// The module as a relocatable ELF object or as assembly. Consumes nothing: a copy is compiled.
std::string emit_host_code(const llvm::Module& module, llvm::TargetMachine& machine, bool assembly);

/// Throws InternalError naming the symbols that the object refers to and does not define.
void check_no_undefined_symbols(const std::string& object);

}  // namespace nestor
