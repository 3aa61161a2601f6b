// Host back end: a tile program to an x86-64 object through LLVM.
#pragma once

#include "codegen/host/target/host_target.h"
#include "codegen/tile/tile_program.h"
#include "support/launch_recipe.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace nestor {

struct HostOptions {
  bool keep_ir = false;  ///< fill CompiledHost::ir and assembly
};

struct CompiledHost {
  CompiledKernel kernel;  ///< code: a relocatable object without undefined symbols
  std::string ir;         ///< optimised LLVM IR
  std::string assembly;
};

/// The program in the order in which host code runs it: to be proved in place of `program`, and compiled.
TileProgram in_host_order(TileProgram program);

/// Vectorised, threaded (through nestor_host_services), register-blocked code with f32 arithmetic.
/// Throws InternalError where values that it computes again are not shown to be those that the program stores.
CompiledHost compile_host(const TileProgram& program, const HostTarget& target, const HostOptions& options = {});

/// A kernel loaded into this process by LLVM ORC, for tuning, exploring and verifying. Keeps the code alive.
class LoadedHostKernel {
 public:
  explicit LoadedHostKernel(const CompiledKernel& kernel);
  ~LoadedHostKernel();
  LoadedHostKernel(LoadedHostKernel&&) noexcept;
  /// Runs with `threads` threads. Vectors follow the recipe's order; strides as in host_abi.h. Allocates the workspace.
  void run(const std::vector<void*>& pointers, const std::vector<std::int64_t>& strides, const Sizes& sizes,
           const std::vector<double>& scalars, int threads) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace nestor
