// Products of f32 with few results and long sums, on lanes: parts of the sums keep all units busy, with tiles of rows and columns in each.
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/candidate_steps.h"

#include <gtest/gtest.h>

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
    ASSERT_TRUE(guesses.has_rule(k, "materialize_factor")) << k;
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

TEST(TallProducts, ManyResultsNeedNoParts) {
  testing::SpaceGuesses guesses(weighted_gram(), {{"N", 2048}, {"I", 2048}});
  for (std::size_t k = 0; k < std::min<std::size_t>(guesses.points.size(), 3); ++k)
    EXPECT_EQ(value_or(guesses.values(k), "split_axis", -1), -1) << k;
}

}  // namespace
}  // namespace nestor
