// A product whose columns are reduced to one value for each row, behind another product: the largest of each feature over all points of a cloud.
// It has a kernel of its own with the reduction, and nothing that it multiplies goes to memory.
#include "autotune/space/structure/nest_analysis.h"
#include "autotune/space/structure/product_chains.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace nestor {
namespace {

using namespace samples;
using testing::count_steps;
using testing::SearchedProblem;

/// one[n, p, k] = tanh(sum of x w), out[n, f] = the largest over p of sum over k of one v; `stores` the sums as well.
Nest pooled_features(bool stores) {
  const std::string place = "0 <= n < B and 0 <= p < P", inner = place + " and 0 <= k < 64", cell = place + " and 0 <= f < F",
                    row = "0 <= n < B and 0 <= f < F";
  NestBuilder builder("pooled_features", {{"B", 16}, {"P", 512}, {"F", 512}});
  builder.tensor("x", TensorRole::input, {"B", "P", "64"}, kHalf)
      .tensor("w", TensorRole::input, {"64", "64"}, kHalf)
      .tensor("v", TensorRole::input, {"F", "64"}, kHalf)
      .tensor("one_sum", TensorRole::temporary, {"B", "P", "64"})
      .tensor("one", TensorRole::temporary, {"B", "P", "64"}, kHalf)
      .tensor("two", TensorRole::temporary, {"B", "P", "F"})
      .tensor("top", TensorRole::temporary, {"B", "F"})
      .tensor("out", TensorRole::output, {"B", "F"})
      .statement("one_init[n, p, k] : " + inner, "one_sum[n, p, k]", {}, number(0))
      .statement("one_sum[n, p, k, e] : " + inner + " and 0 <= e < 64", "one_sum[n, p, k]", {"x[n, p, e]", "w[k, e]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("one[n, p, k] : " + inner, "one[n, p, k]", {"one_sum[n, p, k]"},
                 ScalarExpr::cast(kHalf, apply(ScalarOp::tanh, read(0))))
      .statement("two_init[n, p, f] : " + cell, "two[n, p, f]", {}, number(0))
      .statement("two[n, p, f, k] : " + cell + " and 0 <= k < 64", "two[n, p, f]", {"one[n, p, k]", "v[f, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("top_init[n, f] : " + row, "top[n, f]", {}, number(-infinity()))
      .statement("top_max[n, f, p] : " + row + " and 0 <= p < P", "top[n, f]", {"two[n, p, f]"}, read(0), ReductionOp::max)
      .statement("out[n, f] : " + row, "out[n, f]", {"top[n, f]"}, read(0) * number(0.5));
  if (stores) {
    builder.tensor("all", TensorRole::output, {"B", "P", "F"})
        .statement("all[n, p, f] : " + cell, "all[n, p, f]", {"two[n, p, f]"}, read(0));
  }
  return builder.build();
}

/// Does a stage have the largest over points, and the product beside it?
bool is_folded(const Nest& nest) {
  const NestStructure structure = analyse(Schedule(nest), complete_sizes(nest, {}));
  std::vector<int> all(structure.loop_groups.size());
  std::iota(all.begin(), all.end(), 0);
  const std::vector<ProductStage> stages = product_stages(nest, structure, all);
  return std::any_of(stages.begin(), stages.end(), [&](const ProductStage& stage) {
    std::set<std::string> names;
    for (const int u : stage.loop_groups) {
      for (const std::string& name : structure.loop_groups[static_cast<std::size_t>(u)].statements) names.insert(name);
    }
    return stage.chain && names.contains("two") && names.contains("top_max");
  });
}

TEST(FoldedProducts, WhatIsReducedToRowsHasOneKernelWithItsProduct) {
  SearchedProblem problem(pooled_features(false), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 2);
  EXPECT_EQ(count_steps(candidate, "gpu_threads"), 0) << "a reduction in a kernel of its own";
  for (const Sizes& sizes : {Sizes{{"B", 2}, {"P", 150}, {"F", 130}}, Sizes{{"B", 1}, {"P", 3}, {"F", 8}}})
    EXPECT_EQ(problem.difference(first, sizes, 4e-3), "");
}

TEST(FoldedProducts, ResultsThatLeaveStayWithTheirProduct) {
  SearchedProblem problem(pooled_features(true), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 2);
  EXPECT_EQ(problem.difference(first, {{"B", 2}, {"P", 70}, {"F", 72}}, 4e-3), "");
  EXPECT_FALSE(is_folded(pooled_features(true)));
  EXPECT_TRUE(is_folded(pooled_features(false)));
}

/// out[a, b] = sum over r of tanh(sum over c of q[r, a, c] k[r, b, c]): a bias that all rows of r share has such a gradient. `behind`: q is made
/// by another product. `mask`: of a and b.
Nest summed_scores(bool behind, const std::string& mask = "") {
  const std::string place = "0 <= r < R and 0 <= a < A and 0 <= c < 32", cell = "0 <= a < A and 0 <= b < A" + mask,
                    score = "0 <= r < R and " + cell;
  NestBuilder builder("summed_scores", {{"R", 128}, {"A", 256}});
  builder.tensor("q", behind ? TensorRole::temporary : TensorRole::input, {"R", "A", "32"}, kHalf)
      .tensor("k", TensorRole::input, {"R", "A", "32"}, kHalf)
      .tensor("s", TensorRole::temporary, {"R", "A", "A"})
      .tensor("sum", TensorRole::temporary, {"A", "A"})
      .tensor("out", TensorRole::output, {"A", "A"});
  if (behind) {
    builder.tensor("x", TensorRole::input, {"R", "A", "64"}, kHalf)
        .tensor("w", TensorRole::input, {"32", "64"}, kHalf)
        .tensor("q_sum", TensorRole::temporary, {"R", "A", "32"})
        .statement("q_init[r, a, c] : " + place, "q_sum[r, a, c]", {}, number(0))
        .statement("q_sum[r, a, c, e] : " + place + " and 0 <= e < 64", "q_sum[r, a, c]", {"x[r, a, e]", "w[c, e]"},
                   wide(0) * wide(1), ReductionOp::add)
        .statement("q[r, a, c] : " + place, "q[r, a, c]", {"q_sum[r, a, c]"}, ScalarExpr::cast(kHalf, read(0) * number(0.25)));
  }
  return builder.statement("s_init[r, a, b] : " + score, "s[r, a, b]", {}, number(0))
      .statement("s[r, a, b, c] : " + score + " and 0 <= c < 32", "s[r, a, b]", {"q[r, a, c]", "k[r, b, c]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("sum_init[a, b] : " + cell, "sum[a, b]", {}, number(0))
      .statement("sum[a, b, r] : " + cell + " and 0 <= r < R", "sum[a, b]", {"s[r, a, b]"}, apply(ScalarOp::tanh, read(0)),
                 ReductionOp::add)
      .statement("out[a, b] : " + cell, "out[a, b]", {"sum[a, b]"}, read(0) * number(0.5))
      .build();
}

TEST(FoldedProducts, ProductsThatAreAddedUpHaveOneKernelBehindAnother) {
  SearchedProblem problem(summed_scores(true), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 2);
  EXPECT_EQ(count_steps(candidate, "gpu_threads"), 0);
  EXPECT_EQ(problem.difference(first, {{"R", 3}, {"A", 70}}, 4e-3), "");
}

TEST(FoldedProducts, WhatABlockAddsUpMakesNoOtherBlocks) {
  constexpr std::int64_t kManyUnits = 132, kSide = 256;
  SearchedProblem problem(summed_scores(false), {});
  const auto space = make_nest_space(problem.schedules, problem.sizes, gpu_space_limits(90, 227 << 10, kManyUnits));
  const Candidate candidate = space->candidate(space->defaults().front());
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 1);
  std::int64_t blocks = 1;
  for (const Step& step : candidate.steps) {
    if (step.name == "split" && (step.args.at(0) == "out.a" || step.args.at(0) == "out.b"))
      blocks *= kSide / step.args.at(1).get<std::int64_t>();
  }
  EXPECT_GT(2 * blocks, kManyUnits) << "at least half of the multiprocessors have work";
  EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"R", 3}, {"A", 70}}, 4e-3), "");
}

TEST(FoldedProducts, ALoopOverProductsHasNoLoopOverColumnsAround) {
  SearchedProblem problem(fix_sizes(summed_scores(false, " and b <= a"), {{"A", 256}}), {});
  int guesses = 0;
  for (const Point& point : problem.space->defaults()) {
    const Candidate candidate = problem.space->candidate(point);
    if (!candidate.infeasible.empty() || count_steps(candidate, "tensor_cores") == 0) continue;
    EXPECT_NO_THROW(plan_kernels(build_tile_program(problem.schedules.replay(candidate.steps)), {})) << guesses;
    ++guesses;
  }
  EXPECT_GT(guesses, 0);
}

/// fade[r, a, b] = exp(g[r, a] - g[r, b]), by which summed scores and the weights of another product fade: two kernels read it.
Nest faded_scores() {
  const std::string cell = "0 <= a < A and 0 <= b < A", score = "0 <= r < R and " + cell,
                    row = "0 <= r < R and 0 <= b < A and 0 <= m < 64";
  return NestBuilder("faded_scores", {{"R", 32}, {"A", 256}})
      .tensor("q", TensorRole::input, {"R", "A", "32"}, kHalf)
      .tensor("k", TensorRole::input, {"R", "A", "32"}, kHalf)
      .tensor("y", TensorRole::input, {"R", "A", "64"}, kHalf)
      .tensor("g", TensorRole::input, {"R", "A"})
      .tensor("x", TensorRole::input, {"A", "A"})
      .tensor("fade", TensorRole::temporary, {"R", "A", "A"})
      .tensor("s", TensorRole::temporary, {"R", "A", "A"})
      .tensor("sum", TensorRole::temporary, {"A", "A"})
      .tensor("w", TensorRole::temporary, {"R", "A", "A"}, kHalf)
      .tensor("d_sum", TensorRole::temporary, {"R", "A", "64"})
      .tensor("out", TensorRole::output, {"A", "A"})
      .tensor("d", TensorRole::output, {"R", "A", "64"})
      .statement("fade[r, a, b] : " + score, "fade[r, a, b]", {"g[r, a]", "g[r, b]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("s_init[r, a, b] : " + score, "s[r, a, b]", {}, number(0))
      .statement("s[r, a, b, c] : " + score + " and 0 <= c < 32", "s[r, a, b]", {"q[r, a, c]", "k[r, b, c]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("sum_init[a, b] : " + cell, "sum[a, b]", {}, number(0))
      .statement("sum[a, b, r] : " + cell + " and 0 <= r < R", "sum[a, b]", {"s[r, a, b]", "fade[r, a, b]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("out[a, b] : " + cell, "out[a, b]", {"sum[a, b]"}, read(0) * number(0.5))
      .statement("w[r, a, b] : " + score, "w[r, a, b]", {"x[a, b]", "fade[r, a, b]"}, ScalarExpr::cast(kHalf, read(0) * read(1)))
      .statement("d_init[r, b, m] : " + row, "d_sum[r, b, m]", {}, number(0))
      .statement("d_sum[r, b, m, a] : " + row + " and 0 <= a < A", "d_sum[r, b, m]", {"w[r, a, b]", "y[r, a, m]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("d[r, b, m] : " + row, "d[r, b, m]", {"d_sum[r, b, m]"}, read(0))
      .build();
}

TEST(FoldedProducts, ValuesOfPairsThatSeveralKernelsReadAreComputedInEach) {
  SearchedProblem problem(faded_scores(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  const bool recomputes = std::any_of(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) {
    return step.name == "apply_rule" && step.args.at(0) == "recompute" && step.args.at(1) == "fade";
  });
  EXPECT_TRUE(recomputes);
  EXPECT_EQ(count_steps(candidate, "tensor_cores"), 2);
  EXPECT_EQ(problem.difference(first, {{"R", 3}, {"A", 70}}, 2e-2), "");
}

}  // namespace
}  // namespace nestor
