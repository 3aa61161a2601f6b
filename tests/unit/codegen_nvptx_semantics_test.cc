// GPU code means what its tile program means: the IR of every kernel, run thread by thread on the CPU, agrees with interpret().
#include "support/simt_cases.h"
#include "support/simt_emulator.h"

#include <gtest/gtest.h>

#include <memory>

namespace nestor::testing {
namespace {

/// Storage of every argument and of the workspace, in memory whose end is guarded.
struct HostImage {
  HostImage(const LaunchRecipe& recipe, const CheckData& data, const SimtCase& test) {
    launch.sizes = test.sizes;
    for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
      const auto bytes = size_in_bytes(recipe.arguments[k].type);
      memory.push_back(std::make_unique<GuardedMemory>(static_cast<std::size_t>(data.arguments[k].elements) * bytes,
                                                       static_cast<std::size_t>(test.options.misalignment) * bytes));
      encode(data.arguments[k], recipe.arguments[k].type, memory.back()->data());
      launch.pointers.push_back(reinterpret_cast<std::uint64_t>(memory.back()->data()));
      launch.strides.push_back(data.arguments[k].strides);
    }
    const std::map<std::string, std::int64_t> values(test.sizes.begin(), test.sizes.end());
    memory.push_back(std::make_unique<GuardedMemory>(static_cast<std::size_t>(evaluate_in(recipe.workspace_bytes, values)), 0));
    launch.workspace = reinterpret_cast<std::uint64_t>(memory.back()->data());
  }

  LaunchData launch;
  std::vector<std::unique_ptr<GuardedMemory>> memory;
};

class NvptxSemantics : public ::testing::TestWithParam<SimtCase> {};

TEST_P(NvptxSemantics, kernels_compute_what_the_program_says) {
  const SimtCase& test = GetParam();
  NvptxTarget target;
  target.threads = test.threads;
  const CompiledNvptx compiled = compile_nvptx(test.program, target);
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const CheckData data = make_data(test.program, recipe, test.sizes, test.options);
  SimtEmulator emulator(compiled.ir);
  for (unsigned seed : {1u, 2u}) {
    emulator.seed(seed);
    HostImage image(recipe, data, test);
    launch_recipe(recipe, image.launch, [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) {
      emulator.run(node, blocks, params);
    });
    EXPECT_EQ(compare(recipe, data, test.options, [&](std::size_t k) { return image.memory[k]->data(); }), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(cases, NvptxSemantics, ::testing::ValuesIn(simt_cases()),
                         [](const auto& info) { return info.param.name; });

/// The emulator itself must see what it is there to see.
TEST(SimtEmulator, notices_a_missing_barrier) {
  const CompiledNvptx compiled = compile_nvptx(block_steps_program(), {});
  std::string ir = compiled.ir;
  const std::string call = "call void @llvm.nvvm.barrier0()";
  ASSERT_NE(ir.find(call), std::string::npos);
  for (std::size_t at = ir.find(call); at != std::string::npos; at = ir.find(call, at)) {
    const std::size_t line = ir.rfind('\n', at) + 1;
    ir.erase(line, ir.find('\n', at) - line);
    at = line;
  }
  SimtCase test{"unsynchronised", block_steps_program(), {{"rows", 3}, {"steps", 5}}, {}, 256};
  const CheckData data = make_data(test.program, compiled.kernel.recipe, test.sizes, test.options);
  HostImage image(compiled.kernel.recipe, data, test);
  SimtEmulator emulator(ir);
  launch_recipe(
      compiled.kernel.recipe, image.launch,
      [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) { emulator.run(node, blocks, params); });
  EXPECT_NE(compare(compiled.kernel.recipe, data, test.options, [&](std::size_t k) { return image.memory[k]->data(); }), "");
}

}  // namespace
}  // namespace nestor::testing
