// Products of f32 with few results and long sums: parts of the sums keep all units busy, with tiles of rows and columns in each.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/candidate_steps.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

/// out[i, j] = sum over n of p[n] x[n, i] x[n, j] with p[n] = 1 / (1 + y[n]^2): the curvature of a weighted least-squares problem.
Nest weighted_gram() {
  const std::string cell = "0 <= i < I and 0 <= j < I";
  return NestBuilder("weighted_gram", {{"N", 65536}, {"I", 60}})
      .tensor("x", TensorRole::input, {"N", "I"})
      .tensor("y", TensorRole::input, {"N"})
      .tensor("p", TensorRole::temporary, {"N"})
      .tensor("sum", TensorRole::temporary, {"I", "I"})
      .tensor("out", TensorRole::output, {"I", "I"})
      .statement("p[n] : 0 <= n < N", "p[n]", {"y[n]"}, number(1) / (number(1) + read(0) * read(0)))
      .statement("init[i, j] : " + cell, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, n] : " + cell + " and 0 <= n < N", "sum[i, j]", {"p[n]", "x[n, i]", "x[n, j]"},
                 read(0) * read(1) * read(2), ReductionOp::add)
      .statement("out[i, j] : " + cell, "out[i, j]", {"sum[i, j]"}, read(0))
      .build();
}

TEST(TallProducts, FirstGuessesOnLanesHavePartsOfSums) {
  testing::SpaceGuesses guesses(weighted_gram(), {{"N", 65536}, {"I", 60}});
  for (const std::size_t k : {0U, 1U}) {
    ASSERT_EQ(guesses.has_rule(k, "materialize_factor"), k == 0) << "a factor of a few operations: stored, and computed again";
    const Candidate candidate = guesses.space->candidate(guesses.points.at(k));
    ASSERT_EQ(candidate.infeasible, "") << k;
    EXPECT_EQ(std::count_if(candidate.steps.begin(), candidate.steps.end(),
                            [](const Step& step) { return step.args.at(0) == "split_reduction"; }),
              1);
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    for (const std::int64_t rows : {1, 700})
      EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"N", rows}, {"I", 13}}, {.tolerance = 1e-4}, {1}), "")
          << rows;
  }
}

/// Shares of M places for each of N points by distances in A dims, and what they make of the points: a sum as long as that of the distances,
/// which are no product.
Nest shared_points() {
  const std::string pair = "0 <= n < N and 0 <= m < M", cell = "0 <= m < M and 0 <= a < A";
  return NestBuilder("shared_points", {{"N", 65536}, {"M", 40}, {"A", 16}})
      .tensor("x", TensorRole::input, {"N", "A"})
      .tensor("y", TensorRole::input, {"M", "A"})
      .tensor("far", TensorRole::temporary, {"N", "M"})
      .tensor("share", TensorRole::temporary, {"N", "M"})
      .tensor("sum", TensorRole::temporary, {"M", "A"})
      .tensor("out", TensorRole::output, {"M", "A"})
      .statement("none[n, m] : " + pair, "far[n, m]", {}, number(0))
      .statement("far[n, m, a] : " + pair + " and 0 <= a < A", "far[n, m]", {"x[n, a]", "y[m, a]"},
                 apply(ScalarOp::abs, read(0) - read(1)), ReductionOp::add)
      .statement("share[n, m] : " + pair, "share[n, m]", {"far[n, m]"}, apply(ScalarOp::exp, number(0) - read(0)))
      .statement("init[m, a] : " + cell, "sum[m, a]", {}, number(0))
      .statement("sum[m, a, n] : " + cell + " and 0 <= n < N", "sum[m, a]", {"share[n, m]", "x[n, a]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("out[m, a] : " + cell, "out[m, a]", {"sum[m, a]"}, read(0))
      .build();
}

TEST(TallProducts, HavePartsBesideSumsThatAreNoProducts) {
  testing::SpaceGuesses guesses(shared_points(), {{"N", 65536}, {"M", 40}, {"A", 16}});
  const Candidate candidate = guesses.space->candidate(guesses.points.at(0));
  ASSERT_EQ(candidate.infeasible, "");
  const bool in_parts = std::any_of(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) {
    return step.args.at(0) == "split_reduction" && step.args.at(1) == "sum";
  });
  EXPECT_TRUE(in_parts);
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  for (const std::int64_t points : {1, 700})
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"N", points}, {"M", 13}, {"A", 5}}, {.tolerance = 1e-4}, {1}),
              "")
        << points;
}

TEST(TallProducts, ManyResultsNeedNoParts) {
  testing::SpaceGuesses guesses(weighted_gram(), {{"N", 2048}, {"I", 2048}});
  for (std::size_t k = 0; k < std::min<std::size_t>(guesses.points.size(), 3); ++k)
    EXPECT_EQ(value_or(guesses.values(k), "split_axis", -1), -1) << k;
}

/// Rows whose parts in bf16 are multiplied seldom: parts of their sums on tensor cores, and lanes by turns.
TEST(TallProducts, PartsInBf16TakeTurnsWithLanes) {
  const Sizes fixed{{"I", 120}};
  testing::SpaceGuesses guesses(fix_sizes(weighted_gram(), fixed), fixed);
  ASSERT_TRUE(guesses.has_rule(0, "bf16x6"));
  EXPECT_FALSE(guesses.has_rule(1, "bf16x6"));
  EXPECT_TRUE(guesses.has_rule(2, "bf16x6"));
  const Candidate candidate = guesses.space->candidate(guesses.points.at(0));
  EXPECT_TRUE(std::any_of(candidate.steps.begin(), candidate.steps.end(),
                          [](const Step& step) { return step.args.at(0) == "split_reduction"; }));
  EXPECT_EQ(guesses.space->candidate(guesses.points.at(1)).least_ms, 0) << "it need not wait";
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  const auto& kernels = compiled.plans->kernels;
  EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(), [](const auto& kernel) { return kernel.tensor.has_value(); }));
  for (const std::int64_t rows : {1, 700})
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"N", rows}, {"I", 120}}, {.tolerance = 1e-4}, {1}), "")
        << rows;
}

TEST(TallProducts, LanesWaitWhereElementsAreMultipliedOften) {
  testing::SpaceGuesses guesses(weighted_gram(), {{"N", 65536}, {"I", 2048}});
  EXPECT_TRUE(guesses.has_rule(0, "bf16x6") && guesses.has_rule(1, "bf16x6"));
}

/// out[v, m, s] = sum over n of x[n, v] y[m, n, s]: rows of tiles are two loops further out than columns.
TEST(TallProducts, RowsMayBeOuterLoops) {
  const std::string cell = "0 <= v < V and 0 <= m < M and 0 <= s < M";
  const Nest nest = NestBuilder("outer_rows", {{"V", 64}, {"M", 96}})
                        .tensor("x", TensorRole::input, {"M", "V"})
                        .tensor("y", TensorRole::input, {"M", "M", "M"})
                        .tensor("sum", TensorRole::temporary, {"V", "M", "M"})
                        .tensor("out", TensorRole::output, {"V", "M", "M"})
                        .statement("init[v, m, s] : " + cell, "sum[v, m, s]", {}, number(0))
                        .statement("sum[v, m, s, n] : " + cell + " and 0 <= n < M", "sum[v, m, s]", {"x[n, v]", "y[m, n, s]"},
                                   read(0) * read(1), ReductionOp::add)
                        .statement("out[v, m, s] : " + cell, "out[v, m, s]", {"sum[v, m, s]"}, read(0))
                        .build();
  const Sizes fixed{{"M", 24}};
  testing::SpaceGuesses guesses(fix_sizes(nest, fixed), fixed);
  const auto found = std::find_if(guesses.points.begin(), guesses.points.end(), [&](const Point& point) {
    return value_or(named_values(*guesses.space, point), "tile.v", 0) == 64 && guesses.space->candidate(point).infeasible.empty();
  });
  ASSERT_NE(found, guesses.points.end());
  const CompiledNvptx compiled = compile_nvptx(guesses.program(*found), {});
  for (const std::int64_t rows : {1, 50, 70})
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"V", rows}, {"M", 24}}, {}, {1}), "") << rows;
}

}  // namespace
}  // namespace nestor
