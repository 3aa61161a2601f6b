// Attention on keys in an image, in the space: one kernel, which goes along both dims of the keys.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

TEST(JoinedDims, AttentionOnAnImageIsOneKernel) {
  testing::SpaceGuesses guesses(image_attention(), {{"H", 16}, {"Q", 1024}, {"Y", 170}});
  for (const std::size_t k : {0U, 1U, 3U}) {
    ASSERT_TRUE(guesses.has_rule(k, "join_dims") && guesses.has_rule(k, "online")) << k;
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    EXPECT_EQ(compiled.plans->kernels.size(), 3U) << "copies of keys and values, and the rest";
    EXPECT_TRUE(compiled.plans->kernels.back().tensor);
    for (const std::int64_t rows : {1, 13, 22}) {
      EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 2}, {"Q", 70}, {"Y", rows}}, {.tolerance = 2e-3}, {1}),
                "")
          << k << " " << rows;
    }
  }
}

}  // namespace
}  // namespace nestor
