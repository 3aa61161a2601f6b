// Weights of a softmax that are added up over heads, under a mask: rows of all heads stay in a block, and tiles of columns are a loop in a block of
// their product where rows have different columns.
#include "autotune/space/gpu/known_sizes.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/candidate_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

using namespace samples;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// out[a, n] = sum over u of softmax_n(q[u, a] k[n]) over n of `mask`: how much all heads look at n.
Nest summed_weights(const std::string& depth = "128", const std::string& mask = " and n <= a") {
  const std::string row = "0 <= u < U and 0 <= a < A", cell = row + " and 0 <= n < N" + mask, place = "0 <= a < A and 0 <= n < N";
  return NestBuilder("summed_weights", {{"U", 4}, {"A", 4096}, {"N", 256}, {"K", 128}})
      .tensor("q", TensorRole::input, {"U", "A", depth}, kHalf)
      .tensor("k", TensorRole::input, {"N", depth}, kHalf)
      .tensor("s", TensorRole::temporary, {"U", "A", "N"})
      .tensor("top", TensorRole::temporary, {"U", "A"})
      .tensor("p", TensorRole::temporary, {"U", "A", "N"})
      .tensor("total", TensorRole::temporary, {"U", "A"})
      .tensor("sum", TensorRole::temporary, {"A", "N"})
      .tensor("out", TensorRole::output, {"A", "N"})
      .statement("s_init[u, a, n] : " + cell, "s[u, a, n]", {}, number(0))
      .statement("s[u, a, n, e] : " + cell + " and 0 <= e < " + depth, "s[u, a, n]", {"q[u, a, e]", "k[n, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("top_init[u, a] : " + row, "top[u, a]", {}, number(-infinity()))
      .statement("top[u, a, n] : " + cell, "top[u, a]", {"s[u, a, n]"}, read(0), ReductionOp::max)
      .statement("p[u, a, n] : " + cell, "p[u, a, n]", {"s[u, a, n]", "top[u, a]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("total_init[u, a] : " + row, "total[u, a]", {}, number(0))
      .statement("total[u, a, n] : " + cell, "total[u, a]", {"p[u, a, n]"}, read(0), ReductionOp::add)
      .statement("sum_init[a, n] : " + place, "sum[a, n]", {}, number(0))
      .statement("sum[a, n, u] : " + cell, "sum[a, n]", {"p[u, a, n]", "total[u, a]"}, read(0) / read(1), ReductionOp::add)
      .statement("out[a, n] : " + place, "out[a, n]", {"sum[a, n]"}, read(0))
      .build();
}

const Sizes kLarge{{"U", 4}, {"A", 4096}, {"N", 256}, {"K", 128}};

TEST(SummedWeights, RowsOfAllThatASumRunsOverAreKnown) {
  EXPECT_THAT(sizes_known_to_products(summed_weights(), kLarge), UnorderedElementsAre("N", "U"));
  EXPECT_THAT(sizes_known_to_products(summed_weights("K"), kLarge), UnorderedElementsAre("K", "N", "U"));
  EXPECT_THAT(sizes_known_to_products(summed_weights(), {{"U", 32}, {"A", 4096}, {"N", 256}, {"K", 128}}), IsEmpty())
      << "no room";
  EXPECT_THAT(sizes_known_to_products(testing::attention_nest(), {{"H", 4}, {"Q", 4096}, {"K", 256}}), IsEmpty())
      << "a product's";
  Nest no_weights = summed_weights();
  for (Statement& statement : no_weights.statements) {
    if (statement.name == "p") statement.value = apply(ScalarOp::exp, read(0));
  }
  for (Statement& statement : no_weights.statements) {
    if (statement.name == "p") statement.reads.pop_back();
  }
  EXPECT_THAT(sizes_known_to_products(no_weights, kLarge), IsEmpty()) << "of one element each";
}

TEST(SummedWeights, TheirRowsHaveAKernelBehindTheProduct) {
  for (const std::int64_t columns : {48, 300}) {  // one tile, two tiles
    for (const std::string mask : {" and n <= a", " and 8 n <= a"}) {
      const Nest nest = summed_weights("128", mask);
      const Sizes sizes{{"U", 3}, {"A", 1 << 18}, {"N", columns}, {"K", 128}};
      testing::SpaceGuesses guesses(fix_sizes(nest, {{"U", 3}, {"N", columns}}), sizes);
      const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
      ASSERT_EQ(compiled.plans->kernels.size(), 2U) << columns << mask;
      EXPECT_TRUE(compiled.plans->kernels[0].tensor && !compiled.plans->kernels[1].tensor);
      for (const std::int64_t rows : {1, 70, 333}) {
        EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"A", rows}, {"K", 128}}, {.tolerance = 2e-3}, {1}), "")
            << columns << mask << ", rows " << rows;
      }
    }
  }
}

TEST(SummedWeights, TilesOfColumnsThatFollowRowsHaveAllTerms) {
  testing::SpaceGuesses guesses(summed_weights(), kLarge);
  for (std::size_t k = 0; k < guesses.points.size(); ++k) {
    const Candidate candidate = guesses.space->candidate(guesses.points[k]);
    if (!candidate.infeasible.empty() || testing::count_steps(candidate, "tensor_cores") == 0) continue;
    EXPECT_EQ(value_or(guesses.values(k), "depth", 0), 128) << k;
  }
  NamedValues values = guesses.values(0);
  values["depth"] = 64;
  EXPECT_THAT(guesses.space->candidate(*point_from(*guesses.space, values)).infeasible, HasSubstr("rows have different columns"));
  // Where all rows have the same columns, terms come in tiles.
  EXPECT_EQ(value_or(testing::SpaceGuesses(summed_weights("128", ""), kLarge).values(0), "depth", 0), 64);
}

}  // namespace
}  // namespace nestor
