// Rows between products: scores, sums of them and a softmax, which a block keeps, and weights that the next product reads.
#include "autotune/space/gpu/tensor_fusion.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

/// Attention below the diagonal whose scores have sums of later ones added to them: score[i, j] = s[i, j] + sum over l in j .. i of s[i, l] / 8.
Nest attention_with_running_scores(std::int64_t tokens) {
  const std::string row = "0 <= b < B and 0 <= i < T", pair = row + " and 0 <= j <= i", element = row + " and 0 <= d < 64";
  const ScalarExpr power = ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)});
  return NestBuilder("running_scores", {{"B", 16}, {"T", tokens}})
      .tensor("q", TensorRole::input, {"B", "T", "64"}, kHalf)
      .tensor("k", TensorRole::input, {"B", "T", "64"}, kHalf)
      .tensor("v", TensorRole::input, {"B", "T", "64"}, kHalf)
      .tensor("s", TensorRole::temporary, {"B", "T", "T"})
      .tensor("later", TensorRole::temporary, {"B", "T", "T"})
      .tensor("score", TensorRole::temporary, {"B", "T", "T"})
      .tensor("top", TensorRole::temporary, {"B", "T"})
      .tensor("power", TensorRole::temporary, {"B", "T", "T"})
      .tensor("total", TensorRole::temporary, {"B", "T"})
      .tensor("sum", TensorRole::temporary, {"B", "T", "64"})
      .tensor("out", TensorRole::output, {"B", "T", "64"}, kHalf)
      .statement("s_init[b, i, j] : " + pair, "s[b, i, j]", {}, number(0))
      .statement("s[b, i, j, d] : " + pair + " and 0 <= d < 64", "s[b, i, j]", {"q[b, i, d]", "k[b, j, d]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("later_init[b, i, j] : " + pair, "later[b, i, j]", {}, number(0))
      .statement("later[b, i, j, l] : " + pair + " and j <= l <= i", "later[b, i, j]", {"s[b, i, l]"}, read(0) * number(0.125),
                 ReductionOp::add)
      .statement("score[b, i, j] : " + pair, "score[b, i, j]", {"s[b, i, j]", "later[b, i, j]"}, read(0) + read(1))
      .statement("top_init[b, i] : " + row, "top[b, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[b, i, j] : " + pair, "top[b, i]", {"score[b, i, j]"}, read(0), ReductionOp::max)
      .statement("power[b, i, j] : " + pair, "power[b, i, j]", {"score[b, i, j]", "top[b, i]"}, power)
      .statement("total_init[b, i] : " + row, "total[b, i]", {}, number(0))
      .statement("total[b, i, j] : " + pair, "total[b, i]", {"power[b, i, j]"}, read(0), ReductionOp::add)
      .statement("sum_init[b, i, d] : " + element, "sum[b, i, d]", {}, number(0))
      .statement("sum[b, i, d, j] : " + element + " and 0 <= j <= i", "sum[b, i, d]", {"power[b, i, j]", "v[b, j, d]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("out[b, i, d] : " + element, "out[b, i, d]", {"sum[b, i, d]", "total[b, i]"},
                 ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

std::vector<Step> steps_named(const Candidate& candidate, const std::string& name) {
  std::vector<Step> found;
  std::copy_if(candidate.steps.begin(), candidate.steps.end(), std::back_inserter(found),
               [&](const Step& step) { return step.name == name; });
  return found;
}

TEST(RowsBesideProducts, AreOneKernelBetweenTwoOnTensorCores) {
  SearchedProblem problem(fix_sizes(attention_with_running_scores(300), {{"T", 300}}), {});
  const Candidate candidate = problem.space->candidate(problem.space->defaults().front());
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_FALSE(candidate.cut);
  EXPECT_EQ(value_or(named_values(*problem.space, problem.space->defaults().front()), "fusion", 0), place_of(Fusion::rows));
  EXPECT_EQ(steps_named(candidate, "tensor_cores").size(), 2U);
  EXPECT_LE(steps_named(candidate, "gpu_threads").size(), 2U) << "rows, and the zeros beside the weights";
  EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"B", 1}, {"T", 300}}, 2e-3), "");
}

TEST(RowsBesideProducts, RunningSumsBelowADiagonalAreOnePassOverEachRow) {
  SearchedProblem problem(fix_sizes(attention_with_running_scores(300), {{"T", 300}}), {});
  const Candidate first = problem.space->candidate(problem.space->defaults().front());
  const std::string plan = describe_kernels(build_tile_program(problem.schedules.replay(first.steps)), {.sm = 90});
  EXPECT_NE(plan.find("sums of all"), std::string::npos) << plan;
}

TEST(RowsBesideProducts, AreRightAtOddLengths) {
  for (const std::int64_t tokens : {37, 290}) {
    SearchedProblem problem(fix_sizes(attention_with_running_scores(tokens), {{"T", tokens}}), {{"T", tokens}});
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"B", 2}, {"T", tokens}}, 2e-3), "") << tokens;
  }
}

}  // namespace
}  // namespace nestor
