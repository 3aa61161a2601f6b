// Convolutions of masked images in the space: the image is stored once, with neighbouring terms side by side, rounded or as parts in bf16.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/masked_images.h"
#include "support/nests/nest_runs.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace nestor {
namespace {

const Sizes kLarge{{"B", 16}, {"C", 64}, {"F", 96}, {"Y", 56}};

TEST(MaskedImages, GuessesRoundTheImageOrHaveItInPartsInTurns) {
  Nest nest = samples::masked_images();
  // As the tuner has it.
  const std::set<std::string> fixed = sizes_known_to_products(nest, complete_sizes(nest, kLarge));
  EXPECT_TRUE(fixed.contains("C"));
  for (auto& size : nest.sizes) size.specialized = fixed.contains(size.name);
  testing::SpaceGuesses guesses(nest, kLarge);
  std::string order;
  for (std::size_t k = 0; k < 6; ++k) {
    EXPECT_TRUE(guesses.has_rule(k, "terms_last")) << k;
    EXPECT_FALSE(guesses.has_rule(k, "gather_terms")) << "would store an element for each tap";
    order += guesses.has_rule(k, "bf16x3") ? 'p' : guesses.has_rule(k, "round_operand") ? 'r' : '-';
  }
  EXPECT_EQ(order, "rprprp");
  for (const std::size_t k : {0U, 1U}) {
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    EXPECT_TRUE(compiled.plans->kernels.back().tensor);
    const Sizes ragged{{"B", 2}, {"C", 64}, {"F", 9}, {"Y", 56}};
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), ragged, {.tolerance = 2e-3}, {1}), "") << k;
  }
}

}  // namespace
}  // namespace nestor
