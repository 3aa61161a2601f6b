// Runs compiled GPU code in the emulator, on memory whose end is guarded.
#pragma once

#include "support/simt_cases.h"
#include "support/simt_emulator.h"

#include <memory>

namespace nestor::testing {

/// Storage of every argument and of the workspace.
struct HostImage {
  HostImage(const LaunchRecipe& recipe, const CheckData& data, const Sizes& sizes, const CheckOptions& options) {
    launch.sizes = sizes;
    for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
      const auto bytes = size_in_bytes(recipe.arguments[k].type);
      memory.push_back(std::make_unique<GuardedMemory>(static_cast<std::size_t>(data.arguments[k].elements) * bytes,
                                                       static_cast<std::size_t>(options.misalignment) * bytes));
      encode(data.arguments[k], recipe.arguments[k].type, memory.back()->data());
      launch.pointers.push_back(reinterpret_cast<std::uint64_t>(memory.back()->data()));
      launch.strides.push_back(data.arguments[k].strides);
    }
    const std::map<std::string, std::int64_t> values(sizes.begin(), sizes.end());
    memory.push_back(std::make_unique<GuardedMemory>(static_cast<std::size_t>(evaluate_in(recipe.workspace_bytes, values)), 0));
    launch.workspace = reinterpret_cast<std::uint64_t>(memory.back()->data());
  }

  LaunchData launch;
  std::vector<std::unique_ptr<GuardedMemory>> memory;
};

/// Compares emulated runs with what `meaning` computes; empty when they agree, else the first difference.
inline std::string run_emulated(const CompiledNvptx& compiled, const TileProgram& meaning, const Sizes& sizes,
                                const CheckOptions& options, const std::vector<unsigned>& seeds) {
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const CheckData data = make_data(meaning, recipe, sizes, options);
  SimtEmulator emulator(compiled.ir);
  for (const unsigned seed : seeds) {
    emulator.seed(seed);
    HostImage image(recipe, data, sizes, options);
    launch_recipe(recipe, image.launch, [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) {
      emulator.run(node, blocks, params);
    });
    const std::string difference = compare(recipe, data, options, [&](std::size_t k) { return image.memory[k]->data(); });
    if (!difference.empty()) return fmt::format("{}, order of threads {}", difference, seed);
  }
  return "";
}

}  // namespace nestor::testing
