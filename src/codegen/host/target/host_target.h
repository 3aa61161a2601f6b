// A CPU that the host back end compiles for.
#pragma once

#include <string>

namespace nestor {

struct HostTarget {
  std::string cpu;        ///< LLVM's name of the CPU, e.g. "znver3"
  std::string features;   ///< LLVM feature string
  int vector_bytes = 32;  ///< 16, 32 (AVX2) or 64 (AVX-512)
  int vector_registers = 16;
};

/// The CPU this process runs on.
HostTarget detect_host();

}  // namespace nestor
