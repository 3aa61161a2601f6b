// Products of matrices in turn, as steps toward an orthogonal matrix, and sums of other terms of pairs beside them.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

/// v = x / 32, gram = v v^T, square = gram gram + gram, out = square v + v: what each leaves has 16 bits.
Nest products_in_turn() {
  const std::string row = "0 <= p < P and 0 <= z < Z", pair = "0 <= p < P and 0 <= q < P";
  const ScalarExpr product = wide(0) * wide(1), narrow = ScalarExpr::cast(kHalf, read(0)),
                   more = ScalarExpr::cast(kHalf, read(0) + wide(1));
  return NestBuilder("products_in_turn", {{"P", 1024}, {"Z", 1536}})
      .context("P >= 1 and Z >= 1")
      .tensor("x", TensorRole::input, {"P", "Z"})
      .tensor("v", TensorRole::temporary, {"P", "Z"}, kHalf)
      .tensor("gram_sum", TensorRole::temporary, {"P", "P"})
      .tensor("gram", TensorRole::temporary, {"P", "P"}, kHalf)
      .tensor("square_sum", TensorRole::temporary, {"P", "P"})
      .tensor("square", TensorRole::temporary, {"P", "P"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"P", "Z"})
      .tensor("out", TensorRole::output, {"P", "Z"}, kHalf)
      .statement("v[p, z] : " + row, "v[p, z]", {"x[p, z]"}, ScalarExpr::cast(kHalf, read(0) * number(0.03125)))
      .statement("gram_init[p, q] : " + pair, "gram_sum[p, q]", {}, number(0))
      .statement("gram_add[p, q, z] : " + pair + " and 0 <= z < Z", "gram_sum[p, q]", {"v[p, z]", "v[q, z]"}, product,
                 ReductionOp::add)
      .statement("gram[p, q] : " + pair, "gram[p, q]", {"gram_sum[p, q]"}, narrow)
      .statement("square_init[p, q] : " + pair, "square_sum[p, q]", {}, number(0))
      .statement("square_add[p, q, r] : " + pair + " and 0 <= r < P", "square_sum[p, q]", {"gram[p, r]", "gram[r, q]"}, product,
                 ReductionOp::add)
      .statement("square[p, q] : " + pair, "square[p, q]", {"square_sum[p, q]", "gram[p, q]"}, more)
      .statement("sum_init[p, z] : " + row, "sum[p, z]", {}, number(0))
      .statement("sum[p, z, q] : " + row + " and 0 <= q < P", "sum[p, z]", {"square[p, q]", "v[q, z]"}, product, ReductionOp::add)
      .statement("out[p, z] : " + row, "out[p, z]", {"sum[p, z]", "v[p, z]"}, more)
      .build();
}

TEST(ProductsInTurn, EachIsOnTensorCores) {
  testing::SpaceGuesses guesses(products_in_turn(), {});
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  EXPECT_EQ(std::count_if(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                          [](const auto& kernel) { return kernel.tensor.has_value(); }),
            3);
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"P", 72}, {"Z", 88}}, {.tolerance = 2e-2}, {1}), "");
}

/// The product is made twice, for one head in front, and the second time no score goes to memory.
TEST(SlicedProducts, LeaveAttentionInOneKernel) {
  testing::SpaceGuesses guesses(forgetting_scores(), {{"H", 16}, {"N", 1024}});
  EXPECT_TRUE(guesses.has_rule(0, "slice_product"));
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  ASSERT_TRUE(compiled.plans->kernels.back().tensor);
  const auto& ops = compiled.plans->kernels.back().tensor->ops;
  EXPECT_EQ(
      std::count_if(ops.begin(), ops.end(), [](const nvptx::TensorOp& op) { return op.kind == nvptx::TensorOp::Kind::product; }),
      2)
      << "scores and what they weigh";
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 3}, {"N", 150}}, {.tolerance = 1e-2}, {1}), "");
}

/// score[h, i, j] = sum over w of weight[h, w] max(one[h, i, w] + other[h, j, w], a quarter of it): a small network of each pair.
Nest scores_of_pairs() {
  const std::string pair = "0 <= h < H and 0 <= i < N and 0 <= j < N";
  const ScalarExpr both = wide(1) + wide(2), leaky = ScalarExpr::make(ScalarOp::max, {both, both * number(0.25)});
  return NestBuilder("scores_of_pairs", {{"H", 8}, {"N", 1000}, {"W", 32}})
      .context("H >= 1 and N >= 1 and W >= 1")
      .tensor("weight", TensorRole::input, {"H", "W"})
      .tensor("one", TensorRole::input, {"H", "N", "W"}, kHalf)
      .tensor("other", TensorRole::input, {"H", "N", "W"}, kHalf)
      .tensor("score", TensorRole::output, {"H", "N", "N"})
      .statement("init[h, i, j] : " + pair, "score[h, i, j]", {}, number(0))
      .statement("add[h, i, j, w] : " + pair + " and 0 <= w < W", "score[h, i, j]",
                 {"weight[h, w]", "one[h, i, w]", "other[h, j, w]"}, read(0) * leaky, ReductionOp::add)
      .build();
}

TEST(TermsOfPairs, HaveRegisterBlocksBesideWeightsOfTheirSum) {
  testing::SpaceGuesses guesses(scores_of_pairs(), {});
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  const auto is_block = [](const nvptx::BlockOp& op) { return op.product.has_value(); };
  const auto has_blocks = [&](const auto& kernel) {
    return std::any_of(kernel.bodies.begin(), kernel.bodies.end(),
                       [&](const nvptx::BlockPlan& plan) { return std::any_of(plan.ops.begin(), plan.ops.end(), is_block); });
  };
  EXPECT_TRUE(std::any_of(compiled.plans->kernels.begin(), compiled.plans->kernels.end(), has_blocks));
  for (const std::int64_t terms : {32, 37, 3})
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 2}, {"N", 150}, {"W", terms}}, {.tolerance = 1e-4}, {1}),
              "");
}

}  // namespace
}  // namespace nestor
