// Toolchain: versions that a measurement depends on, on every device.
#pragma once

#include <string>

namespace nestor {

/// "nestor 0.1.0 llvm 19.1.7"
std::string measuring_toolchain();

}  // namespace nestor
