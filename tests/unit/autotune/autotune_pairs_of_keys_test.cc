// Attention to pairs of keys: sums of three factors, of which two are an operand, and weights of two dims beside columns.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/nest_runs.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

namespace nestor {
namespace {

using namespace samples;

/// score[l, a, b] = sum over x of q[l, x] key[l + a, x] pair[l + b, x]; out[l, y] = sum over a and b of softmax(score)[l, a, b] value[l + a, y]
/// other[l + b, y].
Nest pairs_of_keys() {
  const std::string row = "0 <= h < H and 0 <= l < L", keys = row + " and 0 <= a < 48 and 0 <= b < 16",
                    column = row + " and 0 <= y < 64";
  NestBuilder builder("pairs_of_keys", {{"H", 8}, {"L", 2048}});
  builder.tensor("q", TensorRole::input, {"H", "L", "64"}, kHalf);
  for (const char* name : {"key", "value"}) builder.tensor(name, TensorRole::input, {"H", "L + 47", "64"}, kHalf);
  for (const char* name : {"pair", "other"}) builder.tensor(name, TensorRole::input, {"H", "L + 15", "64"}, kHalf);
  for (const char* name : {"dot", "power"}) builder.tensor(name, TensorRole::temporary, {"H", "L", "48", "16"});
  for (const char* name : {"top", "total"}) builder.tensor(name, TensorRole::temporary, {"H", "L"});
  return builder.tensor("seen", TensorRole::temporary, {"H", "L", "64"})
      .tensor("out", TensorRole::output, {"H", "L", "64"}, kHalf)
      .statement("dot_init[h, l, a, b] : " + keys, "dot[h, l, a, b]", {}, number(0))
      .statement("dot[h, l, a, b, x] : " + keys + " and 0 <= x < 64", "dot[h, l, a, b]",
                 {"q[h, l, x]", "key[h, l + a, x]", "pair[h, l + b, x]"}, wide(0) * wide(1) * wide(2), ReductionOp::add)
      .statement("top_init[h, l] : " + row, "top[h, l]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[h, l, a, b] : " + keys, "top[h, l]", {"dot[h, l, a, b]"}, read(0), ReductionOp::max)
      .statement("power[h, l, a, b] : " + keys, "power[h, l, a, b]", {"dot[h, l, a, b]", "top[h, l]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)}))
      .statement("total_init[h, l] : " + row, "total[h, l]", {}, number(0))
      .statement("total[h, l, a, b] : " + keys, "total[h, l]", {"power[h, l, a, b]"}, read(0), ReductionOp::add)
      .statement("seen_init[h, l, y] : " + column, "seen[h, l, y]", {}, number(0))
      .statement("seen[h, l, y, a, b] : " + column + " and 0 <= a < 48 and 0 <= b < 16", "seen[h, l, y]",
                 {"power[h, l, a, b]", "value[h, l + a, y]", "other[h, l + b, y]"}, read(0) * wide(1) * wide(2), ReductionOp::add)
      .statement("out[h, l, y] : " + column, "out[h, l, y]", {"seen[h, l, y]", "total[h, l]"},
                 ScalarExpr::cast(kHalf, ScalarExpr::make(ScalarOp::div, {read(0), read(1)})))
      .build();
}

TEST(PairsOfKeys, ScoresAreOnTensorCoresAndABlockKeepsThoseOfAQuery) {
  testing::SpaceGuesses guesses(pairs_of_keys(), {});
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  const auto& kernels = compiled.plans->kernels;
  ASSERT_EQ(kernels.size(), 3U) << "the operand of two factors, scores, and all that is made of them";
  EXPECT_TRUE(kernels[1].tensor);
  EXPECT_FALSE(kernels[2].tensor);
  EXPECT_EQ(kernels[2].kernel->grid.size(), 2U) << "columns are threads' work, not blocks'";
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 2}, {"L", 5}}, {.tolerance = 2e-2}, {1}), "");
}

/// A product of matrices, and beside it sums over pairs of rows by weights that lie along the terms.
Nest weighted_pairs() {
  const std::string row = "0 <= h < H and 0 <= l < L", column = row + " and 0 <= y < 64", square = row + " and 0 <= m < L";
  NestBuilder builder("weighted_pairs", {{"H", 8}, {"L", 2048}});
  for (const char* name : {"q", "k"}) builder.tensor(name, TensorRole::input, {"H", "L", "64"}, kHalf);
  return builder.tensor("w", TensorRole::input, {"H", "L", "48", "16"})
      .tensor("value", TensorRole::input, {"H", "L + 47", "64"}, kHalf)
      .tensor("other", TensorRole::input, {"H", "L + 15", "64"}, kHalf)
      .tensor("scores", TensorRole::output, {"H", "L", "L"})
      .tensor("seen", TensorRole::output, {"H", "L", "64"})
      .statement("scores_init[h, l, m] : " + square, "scores[h, l, m]", {}, number(0))
      .statement("scores[h, l, m, x] : " + square + " and 0 <= x < 64", "scores[h, l, m]", {"q[h, l, x]", "k[h, m, x]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("seen_init[h, l, y] : " + column, "seen[h, l, y]", {}, number(0))
      .statement("seen[h, l, y, a, b] : " + column + " and 0 <= a < 48 and 0 <= b < 16", "seen[h, l, y]",
                 {"w[h, l, a, b]", "value[h, l + a, y]", "other[h, l + b, y]"}, read(0) * wide(1) * wide(2), ReductionOp::add)
      .build();
}

/// A block for each sum would read single elements of rows.
TEST(PairsOfKeys, ThreadsHaveColumnsWhereWeightsLieAlongTheTerms) {
  testing::SpaceGuesses guesses(weighted_pairs(), {});
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  ASSERT_EQ(compiled.plans->kernels.size(), 2U);
  ASSERT_FALSE(compiled.plans->kernels[1].tensor);
  const nvptx::BlockPlan& sums = compiled.plans->kernels[1].bodies.front();
  const auto seen = std::find_if(sums.ops.begin(), sums.ops.end(), [](const auto& op) { return op.op.name == "seen"; });
  ASSERT_NE(seen, sums.ops.end());
  ASSERT_GE(seen->column, 0);
  const OpDim& column = seen->op.dims[static_cast<std::size_t>(seen->column)];
  EXPECT_FALSE(column.reduced);
  EXPECT_EQ(column.upper.as_constant(), 64);
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 1}, {"L", 9}}, {.tolerance = 1e-4}, {1}), "");
}

}  // namespace
}  // namespace nestor
