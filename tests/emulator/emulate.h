// Emulator of GPU kernels: runs what the GPU back end emitted (LLVM IR and launch recipe) on the CPU, thread by thread, in an order that a
// seed draws. It takes SIMT kernels, kernels of mma.sync and of wgmma, recipes of several launches, workspaces and work counters.
// This is the only header that users need.
#pragma once

#include "nestor/types.h"
#include "support/launch_recipe.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace nestor::testing {

/// Memory of one argument, in the order of the recipe's. `bytes` is what lies there: a kernel that leaves it is reported.
struct EmulatedArgument {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::vector<std::int64_t> strides = {};  ///< elements, one an index; empty: dense
};

struct EmulationOptions {
  unsigned seed = 1;                        ///< of the order of threads, copies and products; equal seeds run equally
  std::int64_t units = 2;                   ///< multiprocessors that resident blocks are counted for
  std::map<std::string, double> scalars{};  ///< others have their default
};

/// What a run came to. Outputs are in the arguments' memory, meaningful without a problem only.
struct EmulationResult {
  /// Empty, or one sentence and its details: a race (both instructions, both threads, the address), a deadlock (who waits for what), an
  /// access outside of all memory, a read of what nobody wrote, an instruction used against its rules.
  std::string problem;
  std::int64_t accesses = 0;  ///< to memory, of all threads
  std::int64_t switches = 0;  ///< between threads
  bool passed() const { return problem.empty(); }
};

/// One compiled kernel, ready to run any number of times. Not for several threads at once; several of them may run in as many processes.
class EmulatedKernel {
 public:
  /// `ir`: CompiledNvptx::ir. Throws InternalError where the emulator does not know an instruction.
  EmulatedKernel(LaunchRecipe recipe, const std::string& ir);
  ~EmulatedKernel();
  EmulatedKernel(const EmulatedKernel&) = delete;
  EmulatedKernel& operator=(const EmulatedKernel&) = delete;

  /// Runs all launches of the recipe. Output arguments should hold NaNs, so that what is not written shows. Throws UserError where the
  /// runtime refuses the launch: arguments that tensor maps cannot describe (support/tensor_view.h).
  EmulationResult run(const Sizes& sizes, const std::vector<EmulatedArgument>& arguments, const EmulationOptions& options = {});

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

/// The kernel of a recipe and its code. That of the last call stays, so that runs at several sizes or on several inputs compile once.
EmulatedKernel& emulated_kernel(const LaunchRecipe& recipe, const std::string& ir);

/// Runs it, once.
EmulationResult emulate(const LaunchRecipe& recipe, const std::string& ir, const Sizes& sizes,
                        const std::vector<EmulatedArgument>& arguments, const EmulationOptions& options = {});

}  // namespace nestor::testing
