// Version of the LLVM linked in.
#include "codegen/llvm/llvm_version.h"

#include <llvm/Config/llvm-config.h>

namespace nestor {

std::string llvm_version() { return LLVM_VERSION_STRING; }

}  // namespace nestor
