// Makes the fake driver this process's driver. Needs the definition NESTOR_FAKE_CUDA, the path of the library.
#pragma once

#include "support/cuda/fake_cuda.h"

#include <dlfcn.h>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace nestor::testing {

/// The fake's state, as a test finds it: reset. Call before anything else of the device layer.
inline FakeCuda& use_fake_cuda() {
  ::setenv("NESTOR_LIBCUDA", NESTOR_FAKE_CUDA, 1);
  void* library = ::dlopen(NESTOR_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  auto* state = reinterpret_cast<FakeCuda* (*)()>(::dlsym(library, "fake_cuda"));
  state()->reset();
  return *state();
}

/// PTX of a kernel with `params` 64-bit parameters, as the fake reads it.
inline std::string fake_ptx(const std::string& kernel, int params, const std::string& target = "sm_90") {
  std::string text = ".version 8.0\n.target " + target + "\n.address_size 64\n.visible .entry " + kernel + "(";
  for (int k = 0; k < params; ++k) text += std::string(k == 0 ? "" : ",") + "\n  .param .u64 p" + std::to_string(k);
  return text + "\n)\n{\n  ret;\n}\n";
}

}  // namespace nestor::testing
