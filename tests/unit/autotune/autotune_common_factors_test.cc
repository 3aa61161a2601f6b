// Packed weights that few rows meet: a warp unpacks each once for all of them, and no kernel stores what it comes to.
#include "autotune/space/group_choice.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/simt/plan/block_plan.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

/// y[i, o] = sum over c of x[i, c] (level of the four bits of weight c of o - 8) scale[o, c / 32]
Nest packed_products() {
  const auto whole = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  const ScalarExpr shift = ScalarExpr::make(ScalarOp::mul, {ScalarExpr::index(0), whole(4)});
  const ScalarExpr word = ScalarExpr::make(ScalarOp::shift_right_logical, {read(1, ElementType::i32), shift});
  const ScalarExpr level = ScalarExpr::cast(ElementType::f32, ScalarExpr::make(ScalarOp::bit_and, {word, whole(15)}));
  const ScalarExpr weight = (level - number(8)) * ScalarExpr::cast(ElementType::f32, read(2, ElementType::f16));
  const std::string result = "0 <= i < I and 0 <= o < O", term = result + " and 0 <= c < 64 B";
  return NestBuilder("packed_products", {{"I", 4}, {"O", 28672}, {"B", 128}})
      .tensor("x", TensorRole::input, {"I", "64 B"}, ElementType::f16)
      .tensor("bits", TensorRole::input, {"O", "8 B"}, ElementType::i32)
      .tensor("scale", TensorRole::input, {"O", "2 B"}, ElementType::f16)
      .tensor("sum", TensorRole::temporary, {"I", "O"})
      .tensor("y", TensorRole::output, {"I", "O"})
      .statement("init[i, o] : " + result, "sum[i, o]", {}, number(0))
      .statement("sum[i, o, c] : " + term, "sum[i, o]", {"x[i, c]", "bits[o, floor(c / 8)]", "scale[o, floor(c / 32)]"},
                 ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) * weight, ReductionOp::add,
                 {"c - 8 * floor(c / 8)"})
      .statement("y[i, o] : " + result, "y[i, o]", {"sum[i, o]"}, read(0))
      .build();
}

TEST(CommonFactors, AreMadeOnceForAllRowsOfAWarp) {
  SpaceGuesses guesses(packed_products(), {});
  EXPECT_FALSE(guesses.has_rule(0, "materialize_factor"));
  const TileProgram program = guesses.program(0);
  const auto plans = plan_kernels(program, {.sm = 90});
  ASSERT_EQ(plans->kernels.size(), 1U);
  const nvptx::BlockPlan& plan = plans->kernels.front().bodies.front();
  EXPECT_EQ(plan.threads, 32);
  const auto sum = std::find_if(plan.ops.begin(), plan.ops.end(), [](const nvptx::BlockOp& op) { return op.reduces_columns(); });
  ASSERT_NE(sum, plan.ops.end());
  EXPECT_TRUE(nvptx::fits_rows_at_once(*sum));
  EXPECT_EQ(sum->layout, (nvptx::Layout{8, 32, 1})) << "eight weights of one word for each lane";
}

TEST(CommonFactors, AreRightForAnyNumberOfRows) {
  SpaceGuesses guesses(packed_products(), {});
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {.sm = 90});
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 8, 11}) {
    for (const std::int64_t blocks : {1, 3, 5}) {
      const Sizes sizes{{"I", rows}, {"O", 3}, {"B", blocks}};
      EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), sizes, {.tolerance = 2e-3}, {1}), "") << rows << " " << blocks;
    }
  }
}

TEST(CommonFactors, ManyRowsHaveTheWeightsStored) {
  SpaceGuesses guesses(packed_products(), {{"I", 512}});
  EXPECT_TRUE(guesses.has_rule(0, "materialize_factor"));
}

/// What a thread would load anew for each row, beside a factor of few operations, is no reason to change how rows are taken.
TEST(CommonFactors, AreWorthSomeOperations) {
  const std::string result = "0 <= i < I and 0 <= o < O", term = result + " and 0 <= c < C";
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  const Nest nest = NestBuilder("scaled_products", {{"I", 4}, {"O", 28672}, {"C", 8192}})
                        .tensor("x", TensorRole::input, {"I", "C"}, ElementType::f16)
                        .tensor("w", TensorRole::input, {"O", "C"}, ElementType::f16)
                        .tensor("s", TensorRole::input, {"O", "C"}, ElementType::f16)
                        .tensor("sum", TensorRole::temporary, {"I", "O"})
                        .tensor("y", TensorRole::output, {"I", "O"})
                        .statement("init[i, o] : " + result, "sum[i, o]", {}, number(0))
                        .statement("sum[i, o, c] : " + term, "sum[i, o]", {"x[i, c]", "w[o, c]", "s[o, c]"},
                                   wide(0) * (wide(1) * wide(2)), ReductionOp::add)
                        .statement("y[i, o] : " + result, "y[i, o]", {"sum[i, o]"}, read(0))
                        .build();
  SpaceGuesses guesses(nest, {});
  const TileProgram program = guesses.program(0);
  const auto plans = plan_kernels(program, {.sm = 90});
  for (const PlannedKernel& kernel : plans->kernels) {
    for (const nvptx::BlockPlan& plan : kernel.bodies) {
      for (const nvptx::BlockOp& op : plan.ops) EXPECT_EQ(nvptx::most_rows_at_once(op), 0) << op.op.name;
    }
  }
}

}  // namespace
}  // namespace nestor
