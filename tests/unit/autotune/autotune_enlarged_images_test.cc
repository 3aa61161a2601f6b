// Convolutions of enlarged images in the space: tiles have rows of neighbouring places, also beside a convolution of another map.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/enlarged_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

TEST(EnlargedImages, HaveRowsOfNeighbours) {
  testing::SpaceGuesses guesses(enlarged_beside_convolution(), {{"N", 8}, {"S", 32}, {"F", 128}});
  for (const std::size_t k : {0U, 1U}) {
    ASSERT_TRUE(guesses.has_rule(k, "repeat_elements") && guesses.has_rule(k, "skip_zeros")) << k;
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    const auto& kernels = compiled.plans->kernels;
    EXPECT_EQ(kernels.size(), 2U) << "the larger image, and both convolutions in one";
    EXPECT_TRUE(kernels.back().tensor);
    for (const std::int64_t side : {1, 5}) {
      EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"N", 2}, {"S", side}, {"F", 24}}, {.tolerance = 2e-3}, {1}),
                "")
          << k << " " << side;
    }
  }
}

}  // namespace
}  // namespace nestor
