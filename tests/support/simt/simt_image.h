// Runs compiled GPU code in the emulator, on memory whose end is guarded.
#pragma once

#include "emulator/emulate.h"
#include "support/simt/simt_cases.h"

#include <memory>

namespace nestor::testing {

/// Storage of every argument.
struct HostImage {
  HostImage(const LaunchRecipe& recipe, const CheckData& data, const CheckOptions& options) {
    for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
      const auto bytes = size_in_bytes(recipe.arguments[k].type);
      const auto size = static_cast<std::size_t>(data.arguments[k].elements) * bytes;
      memory.push_back(std::make_unique<GuardedMemory>(size, static_cast<std::size_t>(options.misalignment) * bytes));
      encode(data.arguments[k], recipe.arguments[k].type, memory.back()->data());
      arguments.push_back({memory.back()->data(), size, data.arguments[k].strides});
    }
  }

  std::vector<EmulatedArgument> arguments;
  std::vector<std::unique_ptr<GuardedMemory>> memory;
};

/// Compares emulated runs with what the program means; empty when they agree, else what the emulator reports, or the first difference.
inline std::string run_emulated(const CompiledNvptx& compiled, const CheckData& data, const Sizes& sizes,
                                const CheckOptions& options, const std::vector<unsigned>& seeds) {
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  EmulatedKernel& kernel = emulated_kernel(recipe, compiled.ir);
  for (const unsigned seed : seeds) {
    HostImage image(recipe, data, options);
    const EmulationResult result = kernel.run(sizes, image.arguments, {.seed = seed});
    if (!result.passed()) return fmt::format("{}, order of threads {}", result.problem, seed);
    const std::string difference = compare(recipe, data, options, [&](std::size_t k) { return image.memory[k]->data(); });
    if (!difference.empty()) return fmt::format("{}, order of threads {}", difference, seed);
  }
  return "";
}

inline std::string run_emulated(const CompiledNvptx& compiled, const TileProgram& meaning, const Sizes& sizes,
                                const CheckOptions& options, const std::vector<unsigned>& seeds) {
  return run_emulated(compiled, data_of(meaning, compiled.kernel.recipe, sizes, options), sizes, options, seeds);
}

}  // namespace nestor::testing
