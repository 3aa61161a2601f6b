// Nestor and LLVM.
#include "autotune/target/toolchain.h"

#include "codegen/llvm/llvm_version.h"

namespace nestor {

std::string measuring_toolchain() { return "nestor 0.1.0 llvm " + llvm_version(); }

}  // namespace nestor
