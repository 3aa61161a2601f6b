// Products of f32 and f16 in the space: weights that f16 does not hold are numbers in bf16, beside products of f16 in one kernel.
#include "codegen/gpu/kernel_plans.h"
#include "poly/algebra/all_rules.h"
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

TEST(MixedProducts, GuessesWithPartsComeInTurns) {
  Guesses guesses(linear_attention(), kLarge);
  ASSERT_GT(guesses.points.size(), 8U);
  std::string order;
  for (std::size_t k = 0; k < 8; ++k) order += guesses.in_parts(k) ? 'p' : '-';
  EXPECT_EQ(order, "-p-p-p-p");
  for (const std::size_t k : {1U, 3U}) {
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    EXPECT_TRUE(compiled.plans->kernels.back().tensor);
    EXPECT_EQ(compiled.plans->kernels.size(), 2U) << "parts of values, and the rest";
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), kRagged, {.tolerance = 2e-3}, {1}), "") << k;
  }
  EXPECT_EQ(Guesses(linear_attention(ElementType::bf16), kLarge).in_parts(1), false);
}

/// Filters that are sums of eight others, in f16, take little time on lanes, and nothing is rounded for their sake.
TEST(MixedProducts, ShortSumsBesideProductsOfF16HaveNoParts) {
  const std::string filter = "0 <= n < B and 0 <= o < 128 and 0 <= c < 128",
                    result = "0 <= n < B and 0 <= i < N and 0 <= o < 128";
  const ScalarExpr wide = ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)),
                   product = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) * wide;
  const Nest nest =
      NestBuilder("mixed_filters", {{"B", 32}, {"N", 4096}, {"E", 8}})
          .tensor("route", TensorRole::input, {"B", "E"})
          .tensor("filters", TensorRole::input, {"E", "128", "128"}, ElementType::f16)
          .tensor("x", TensorRole::input, {"B", "N", "128"}, ElementType::f16)
          .tensor("mixed", TensorRole::temporary, {"B", "128", "128"})
          .tensor("own", TensorRole::temporary, {"B", "128", "128"}, ElementType::f16)
          .tensor("sums", TensorRole::temporary, {"B", "N", "128"})
          .tensor("out", TensorRole::output, {"B", "N", "128"}, ElementType::f16)
          .statement("mixed_init[n, o, c] : " + filter, "mixed[n, o, c]", {}, number(0))
          .statement("mixed[n, o, c, e] : " + filter + " and 0 <= e < E", "mixed[n, o, c]", {"route[n, e]", "filters[e, o, c]"},
                     read(0) * wide, ReductionOp::add)
          .statement("own[n, o, c] : " + filter, "own[n, o, c]", {"mixed[n, o, c]"}, ScalarExpr::cast(ElementType::f16, read(0)))
          .statement("init[n, i, o] : " + result, "sums[n, i, o]", {}, number(0))
          .statement("sum[n, i, o, c] : " + result + " and 0 <= c < 128", "sums[n, i, o]", {"x[n, i, c]", "own[n, o, c]"},
                     product, ReductionOp::add)
          .statement("out[n, i, o] : " + result, "out[n, i, o]", {"sums[n, i, o]"}, ScalarExpr::cast(ElementType::f16, read(0)))
          .build();
  ASSERT_FALSE(rule("bf16x3").find(nest).empty());
  Guesses guesses(nest, {});
  for (std::size_t k = 0; k < guesses.points.size(); ++k) EXPECT_FALSE(guesses.in_parts(k)) << k;
  EXPECT_GT(value_or(guesses.values(0), "warpgroups", 0), 0);
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
  EXPECT_LT(largest_error(1), 1e-3);
  EXPECT_GT(largest_error(0), 0.1) << "rounded to f16";
}

}  // namespace
}  // namespace nestor
