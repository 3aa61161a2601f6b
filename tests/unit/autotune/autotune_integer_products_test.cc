// Products of integers in the space: first guesses have them on tensor cores, and are exact for small and for large ones.
#include "codegen/gpu/kernel_plans.h"
#include "support/element_codec.h"
#include "support/nests/integer_nests.h"
#include "support/nests/nest_runs.h"
#include "support/nests/space_guesses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

/// Factors up to `most`; those of the first row up to 100,000, whose products wrap.
testing::NestInputs integers_up_to(int most) {
  testing::NestInputs inputs{{{"B", 2}, {"N", 21}, {"M", 40}}, {}, {}};
  std::mt19937 random(5);
  std::uniform_int_distribution<int> small(-most, most), large(-100000, 100000);
  for (int n = 0; n < 2 * 21 * 64; ++n) inputs.tensors["x"].push_back(n < 64 ? large(random) : small(random));
  for (int n = 0; n < 2 * 40 * 64; ++n) inputs.tensors["y"].push_back(n < 64 ? large(random) : small(random));
  for (int n = 0; n < 2 * 21; ++n) inputs.tensors["s"].push_back(1);
  return inputs;
}

TEST(IntegerProductsSpace, FirstGuessesAreOnTensorCoresAndExact) {
  const Nest nest = integer_products();
  SpaceGuesses all(nest, {{"B", 16}, {"N", 2048}, {"M", 2048}});
  ASSERT_TRUE(all.has_rule(0, "integer_product"));
  const TileProgram program = all.program(0);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  ASSERT_TRUE(compiled.plans->kernels.back().tensor);
  for (const int most : {127, 256, 1000}) {
    const testing::NestInputs inputs = integers_up_to(most);
    EXPECT_EQ(testing::run_emulated(compiled, program, inputs).at("out"), testing::run_oracle(nest, inputs, false).at("out"))
        << most;
  }
}

TEST(IntegerProductsSpace, GroupsOfPackedWeightsAreOnTensorCoresAndExact) {
  for (const int most : {0, 127}) {
    const Nest nest = packed_weights(most);
    SpaceGuesses all(nest, {{"N", 2048}, {"M", 2048}, {"U", 32}});
    ASSERT_TRUE(all.has_rule(0, "integer_product")) << most;
    const TileProgram program = all.program(0);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    ASSERT_TRUE(compiled.plans->kernels.back().tensor) << most;
    for (const int large : {127, 3000}) {
      testing::NestInputs inputs{{{"N", 21}, {"M", 40}, {"U", 3}}, {}, {}};
      std::mt19937 random(7);
      std::uniform_int_distribution<int> level(-large, large),
          word(std::numeric_limits<int>::min(), std::numeric_limits<int>::max());
      for (int n = 0; n < 21 * 64 * 3; ++n) inputs.tensors["x"].push_back(level(random));
      for (int n = 0; n < 40 * 8 * 3; ++n) inputs.tensors["y"].push_back(word(random));
      for (int n = 0; n < 40 * 3; ++n) inputs.tensors["scale"].push_back(std::ldexp(1.0, n % 3));
      EXPECT_EQ(testing::run_emulated(compiled, program, inputs).at("out"), testing::run_oracle(nest, inputs, false).at("out"))
          << most << ", " << large;
    }
  }
}

TEST(IntegerProductsSpace, LongSumsOfScaledRowsAreOnTensorCoresAndExact) {
  const Nest nest = scaled_rows("700");
  SpaceGuesses all(nest, {{"N", 2048}, {"M", 2048}});
  ASSERT_TRUE(all.has_rule(0, "integer_product"));
  const TileProgram program = all.program(0);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  ASSERT_TRUE(compiled.plans->kernels.back().tensor);
  testing::NestInputs inputs{{{"N", 21}, {"M", 40}}, {}, {}};
  std::mt19937 random(3);
  std::uniform_int_distribution<int> level(-127, 127), word(0, 1000);
  for (int n = 0; n < 21 * 700; ++n) {
    const int row = n / 700;  // rows of 0, of the largest number, and such that steps are 1
    inputs.tensors["x"].push_back(row == 0 ? 0 : n % 700 == 0 || row == 1 ? 127 : level(random));
  }
  for (int n = 0; n < 40 * 700; ++n) inputs.tensors["y"].push_back(n < 700 ? 255 : word(random));
  EXPECT_EQ(testing::run_emulated(compiled, program, inputs).at("out"), testing::run_oracle(nest, inputs, false).at("out"));
}

TEST(IntegerProductsSpace, AttentionWithIntegersIsOneKernel) {
  const Nest nest = integer_attention();
  SpaceGuesses all(nest, {{"B", 16}, {"N", 2048}, {"M", 2048}});
  ASSERT_TRUE(all.has_rule(0, "integer_product") && all.has_rule(0, "online"));
  const TileProgram program = all.program(0);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  ASSERT_EQ(compiled.plans->kernels.size(), 3U) << "both factors in bf16, and all else";
  testing::NestInputs inputs = integers_up_to(127);
  std::mt19937 random(9);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (double& scale : inputs.tensors["s"]) scale = 0x1p-14;
  inputs.tensors["s"].front() = 0x1p-30;
  for (int n = 0; n < 2 * 40 * 64; ++n) inputs.tensors["v"].push_back(round_to(ElementType::bf16, uniform(random)));
  const std::vector<double> got = testing::run_emulated(compiled, program, inputs).at("out"),
                            want = testing::run_oracle(nest, inputs, false).at("out");
  for (std::size_t n = 0; n < want.size(); ++n) ASSERT_NEAR(got[n], want[n], 0x1p-7) << n;
}

}  // namespace
}  // namespace nestor
