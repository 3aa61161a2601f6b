// The LLVM that generates code: part of what a measurement depends on.
#pragma once

#include <string>

namespace nestor {

/// "19.1.7"
std::string llvm_version();

}  // namespace nestor
