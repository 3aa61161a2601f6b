// GPU code means what its tile program means: the IR of every kernel, run thread by thread on the CPU, agrees with interpret().
#include "support/simt_check.h"
#include "support/simt_emulator.h"
#include "support/simt_programs.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

constexpr ElementType f32 = ElementType::f32, f16 = ElementType::f16, bf16 = ElementType::bf16;
constexpr double kHalfTolerance = 2e-3, kBfloatTolerance = 1e-2;

std::string emulate(const TileProgram& program, const Sizes& sizes, const CheckOptions& options = {}, const NvptxTarget& target = {}) {
  const CompiledNvptx compiled = compile_nvptx(program, target);
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const CheckData data = make_data(program, recipe, sizes, options);
  std::vector<std::unique_ptr<GuardedMemory>> memory;
  LaunchData launch;
  launch.sizes = sizes;
  for (std::size_t k = 0; k < recipe.arguments.size(); ++k) {
    const auto bytes = size_in_bytes(recipe.arguments[k].type);
    memory.push_back(std::make_unique<GuardedMemory>(static_cast<std::size_t>(data.arguments[k].elements) * bytes, static_cast<std::size_t>(options.misalignment) * bytes));
    encode(data.arguments[k], recipe.arguments[k].type, memory.back()->data());
    launch.pointers.push_back(reinterpret_cast<std::uint64_t>(memory.back()->data()));
    launch.strides.push_back(data.arguments[k].strides);
  }
  std::map<std::string, std::int64_t> values(sizes.begin(), sizes.end());
  const GuardedMemory workspace(static_cast<std::size_t>(evaluate_in(recipe.workspace_bytes, values)), 0);
  launch.workspace = reinterpret_cast<std::uint64_t>(workspace.data());
  for (unsigned seed : {1u, 2u}) {
    SimtEmulator emulator(compiled.ir, seed);
    launch_recipe(recipe, launch, [&](const LaunchNode& node, std::int64_t blocks, std::vector<void*>& params) { emulator.run(node, blocks, params); });
    const std::string difference = compare(recipe, data, options, [&](std::size_t k) { return memory[k]->data(); });
    if (!difference.empty()) return difference;
  }
  return "";
}

TEST(NvptxSemantics, vectors_of_any_length_and_alignment) {
  for (std::int64_t n : {1, 8, 1000, 4096, 5003}) {
    EXPECT_EQ(emulate(vector_program(f32), {{"n", n}}), "") << n;
    EXPECT_EQ(emulate(vector_program(f16), {{"n", n}}, {.tolerance = kHalfTolerance}), "") << n;
  }
  EXPECT_EQ(emulate(vector_program(bf16), {{"n", 4096}}, {.tolerance = kBfloatTolerance}), "");
  EXPECT_EQ(emulate(vector_program(f32), {{"n", 4096}}, {.misalignment = 1}), "");
}

TEST(NvptxSemantics, rows_kept_in_registers) {
  EXPECT_EQ(emulate(norm_program(f32, 1024, 1), {{"batch", 3}}), "");
  EXPECT_EQ(emulate(norm_program(bf16, 1024, 1), {{"batch", 3}}, {.tolerance = kBfloatTolerance}), "");
  EXPECT_EQ(emulate(norm_program(f16, 768, 1), {{"batch", 2}}, {.tolerance = kHalfTolerance}), "");
  EXPECT_EQ(emulate(norm_program(f32, 8192, 1), {{"batch", 2}}), "");
}

TEST(NvptxSemantics, several_rows_a_block_with_a_partial_last_block) {
  EXPECT_EQ(emulate(norm_program(f16, 128, 8), {{"batch", 13}}, {.tolerance = kHalfTolerance}), "");
  EXPECT_EQ(emulate(norm_program(f32, 512, 4), {{"batch", 7}}), "");
  EXPECT_EQ(emulate(norm_program(f32, 4096, 2), {{"batch", 5}}), "");
}

TEST(NvptxSemantics, rows_of_awkward_width_padding_and_address) {
  EXPECT_EQ(emulate(norm_program(f32, 1001, 1), {{"batch", 2}}), "");
  EXPECT_EQ(emulate(norm_program(f32, 1024, 1), {{"batch", 3}}, {.row_padding = 3}), "");
  EXPECT_EQ(emulate(norm_program(f16, 1024, 4), {{"batch", 5}}, {.row_padding = 8, .tolerance = kHalfTolerance}), "");
  EXPECT_EQ(emulate(norm_program(bf16, 1024, 4), {{"batch", 5}}, {.misalignment = 1, .tolerance = kBfloatTolerance}), "");
}

TEST(NvptxSemantics, streaming_stores) { EXPECT_EQ(emulate(norm_program(f16, 1024, 1, true), {{"batch", 2}}, {.tolerance = kHalfTolerance}), ""); }

TEST(NvptxSemantics, rows_of_unknown_width) {
  for (std::int64_t cols : {1, 31, 1000, 4104}) EXPECT_EQ(emulate(softmax_program(f32), {{"rows", 3}, {"cols", cols}}), "") << cols;
  EXPECT_EQ(emulate(softmax_program(f16), {{"rows", 2}, {"cols", 2048}}, {.tolerance = kHalfTolerance}), "");
}

TEST(NvptxSemantics, sums_over_rows_and_columns) {
  for (bool columns : {false, true}) {
    EXPECT_EQ(emulate(sum_program(f32, columns), {{"rows", 37}, {"cols", 300}}), "") << columns;
    EXPECT_EQ(emulate(sum_program(f16, columns), {{"rows", 5}, {"cols", 4096}}, {.tolerance = kHalfTolerance}), "") << columns;
  }
}

TEST(NvptxSemantics, products_of_any_size) {
  EXPECT_EQ(emulate(product_program(f32, false, false), {{"m", 70}, {"n", 130}, {"k", 45}}), "");
  EXPECT_EQ(emulate(product_program(f32, false, false), {{"m", 128}, {"n", 64}, {"k", 64}}), "");
  EXPECT_EQ(emulate(product_program(f32, true, false), {{"m", 64}, {"n", 128}, {"k", 96}}), "");
  EXPECT_EQ(emulate(product_program(f16, true, true), {{"batch", 2}, {"m", 33}, {"n", 72}, {"k", 40}}, {.tolerance = kHalfTolerance}), "");
  EXPECT_EQ(emulate(product_program(bf16, false, false), {{"m", 64}, {"n", 64}, {"k", 32}}, {.tolerance = kBfloatTolerance}), "");
  EXPECT_EQ(emulate(product_program(f32, false, false), {{"m", 1}, {"n", 5}, {"k", 3}}), "");
}

TEST(NvptxSemantics, sums_of_a_product_live_across_the_stream) {
  EXPECT_EQ(emulate(tiled_product_program(f32, 64, 32), {{"m", 100}, {"n", 130}, {"k", 70}}), "");
  EXPECT_EQ(emulate(tiled_product_program(f16, 64, 64), {{"m", 64}, {"n", 128}, {"k", 128}}, {.tolerance = kHalfTolerance}), "");
}

TEST(NvptxSemantics, one_pass_attention) {
  EXPECT_EQ(emulate(streaming_attention_program(f32, 64, false), {{"heads", 2}, {"s", 128}}), "");
  EXPECT_EQ(emulate(streaming_attention_program(f32, 64, true), {{"heads", 1}, {"s", 200}}), "");
  EXPECT_EQ(emulate(streaming_attention_program(f16, 64, true), {{"heads", 1}, {"s", 128}}, {.tolerance = kHalfTolerance}), "");
}

TEST(NvptxSemantics, time_steps_are_launches) {
  EXPECT_EQ(emulate(relaxation_program(), {{"steps", 3}, {"n", 50}}), "");
  EXPECT_EQ(emulate(wavefront_program(), {{"n", 20}}), "");
}

TEST(NvptxSemantics, sequential_dims_stay_in_one_thread) { EXPECT_EQ(emulate(running_sum_program(), {{"rows", 70}, {"cols", 33}}), ""); }

TEST(NvptxSemantics, tiles_read_in_another_order) {
  EXPECT_EQ(emulate(transpose_program(f32), {{"rows", 50}, {"cols", 70}}), "");
  EXPECT_EQ(emulate(transpose_program(f16), {{"rows", 64}, {"cols", 64}}), "");
}

TEST(NvptxSemantics, integers) { EXPECT_EQ(emulate(integer_program(), {{"rows", 9}, {"cols", 77}}), ""); }

TEST(NvptxSemantics, functions) { EXPECT_EQ(emulate(functions_program(), {{"n", 300}}, {.spread = 3}), ""); }

TEST(NvptxSemantics, any_number_of_threads) {
  for (int threads : {32, 96, 512}) {
    NvptxTarget target;
    target.threads = threads;
    EXPECT_EQ(emulate(norm_program(f32, 1000, 2), {{"batch", 3}}, {}, target), "") << threads;
    EXPECT_EQ(emulate(tiled_product_program(f32, 64, 32), {{"m", 70}, {"n", 64}, {"k", 40}}, {}, target), "") << threads;
  }
}

}  // namespace
}  // namespace nestor::testing
