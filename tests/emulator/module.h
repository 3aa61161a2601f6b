// Kernels of one module of NVPTX IR as functions of this processor: instructions of the GPU become calls of instructions.h, and every access to
// memory tells the machine of itself first.
#pragma once

#include "emulator/shadow.h"

#include <map>
#include <memory>
#include <string>

namespace nestor::emulation {

class Module {
 public:
  /// Throws InternalError where it does not know an instruction.
  explicit Module(const std::string& ir);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  using Kernel = void (*)(void** params);
  /// `params`: addresses of the values, as for cuLaunchKernel; of tensor maps, addresses of TensorMap.
  Kernel kernel(const std::string& symbol);
  /// Blocks of the kernel that share a multiprocessor, as ptxas is told; 0: it is not.
  int residents(const std::string& symbol) const;
  /// "`store float %1, ptr ...` of kernel_0"
  std::string text_of(Site site) const;

 private:
  class Code;
  std::string ir_;
  std::map<std::string, int> residents_;
  std::unique_ptr<Code> code_;
};

}  // namespace nestor::emulation
