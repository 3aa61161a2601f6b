// Products of f32 and f16 in the space: weights that f16 does not hold are numbers in bf16, beside products of f16 in one kernel.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/nest_runs.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace nestor {
namespace {

using namespace samples;

struct Guesses : testing::SpaceGuesses {
  using SpaceGuesses::SpaceGuesses;
  bool in_parts(std::size_t k) const { return has_rule(k, "bf16x3"); }
};

const Sizes kLarge{{"H", 16}, {"N", 2048}}, kRagged{{"H", 2}, {"N", 71}};

TEST(MixedProducts, GuessesWithPartsComeInTurnsAfterAFew) {
  Guesses guesses(linear_attention(), kLarge);
  ASSERT_GT(guesses.points.size(), 8U);
  std::string order;
  for (std::size_t k = 0; k < 8; ++k) order += guesses.in_parts(k) ? 'p' : '-';
  EXPECT_EQ(order, "---ppp-p");
  for (const std::size_t k : {3U, 4U}) {
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    EXPECT_TRUE(compiled.plans->kernels.back().tensor);
    EXPECT_EQ(compiled.plans->kernels.size(), 2U) << "parts of values, and the rest";
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), kRagged, {.tolerance = 2e-3}, {1}), "") << k;
  }
  EXPECT_EQ(Guesses(linear_attention(ElementType::bf16), kLarge).in_parts(3), false);
}

/// Where a row's weights are all tiny, f16 has none of them, and the quotient of the sums is none of the values.
TEST(MixedProducts, TinyWeightsAreKept) {
  Guesses guesses(linear_attention(), kLarge);
  testing::NestInputs inputs{{{"H", 1}, {"N", 40}}, {}, {}};
  for (std::int64_t row = 0; row < 40; ++row) {
    for (std::int64_t e = 0; e < 64; ++e) {
      inputs.tensors["q"].push_back(std::ldexp(1, row % 2 == 0 ? 0 : -24) * static_cast<double>(1 + (row + e) % 3));
      inputs.tensors["k"].push_back(std::ldexp(1, -8) * static_cast<double>(1 + (row * 5 + e) % 7));
      inputs.tensors["v"].push_back(static_cast<double>((row * 13 + e * 7) % 31 + 1) / 32);
    }
  }
  const std::vector<double> wanted = testing::run_oracle(linear_attention(), inputs, false).at("out");
  const auto largest_error = [&](std::size_t k) {
    const std::vector<double> found = testing::run_emulated(guesses.program(k), inputs).at("out");
    double most = 0;
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      const double error = std::fabs(found[at] - wanted[at]);
      most = error <= most ? most : error;
    }
    return most;
  };
  EXPECT_LT(largest_error(3), 1e-3);
  EXPECT_GT(largest_error(0), 0.1) << "rounded to f16";
}

}  // namespace
}  // namespace nestor
