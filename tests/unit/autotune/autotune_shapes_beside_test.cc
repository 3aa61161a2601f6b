// Products beside the main group have shapes of their own, which are searched; tiles of few streamed columns are no wider than these.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/nest_runs.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

namespace nestor {
namespace {

using namespace samples;

/// votes[h, j] = sum over i of softmax over j of (q k^T)[i, j]: what a few queries look at, added up over them.
Nest votes() {
  const std::string row = "0 <= h < H and 0 <= i < M", column = "0 <= h < H and 0 <= j < N", cell = row + " and 0 <= j < N";
  const ScalarExpr share = ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)});
  NestBuilder builder("votes", {{"H", 32}, {"M", 32}, {"N", 8192}});
  builder.tensor("q", TensorRole::input, {"H", "M", "128"}, kHalf).tensor("k", TensorRole::input, {"H", "N", "128"}, kHalf);
  for (const char* name : {"dot", "s"}) builder.tensor(name, TensorRole::temporary, {"H", "M", "N"});
  for (const char* name : {"top", "total"}) builder.tensor(name, TensorRole::temporary, {"H", "M"});
  return builder.tensor("votes", TensorRole::output, {"H", "N"})
      .statement("dot_init[h, i, j] : " + cell, "dot[h, i, j]", {}, number(0))
      .statement("dot[h, i, j, e] : " + cell + " and 0 <= e < 128", "dot[h, i, j]", {"q[h, i, e]", "k[h, j, e]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("s[h, i, j] : " + cell, "s[h, i, j]", {"dot[h, i, j]"}, read(0) * number(0.0625))
      .statement("top_init[h, i] : " + row, "top[h, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[h, i, j] : " + cell, "top[h, i]", {"s[h, i, j]"}, read(0), ReductionOp::max)
      .statement("total_init[h, i] : " + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j] : " + cell, "total[h, i]", {"s[h, i, j]", "top[h, i]"}, share, ReductionOp::add)
      .statement("votes_init[h, j] : " + column, "votes[h, j]", {}, number(0))
      .statement("votes[h, j, i] : " + column + " and 0 <= i < M", "votes[h, j]", {"s[h, i, j]", "top[h, i]", "total[h, i]"},
                 ScalarExpr::make(ScalarOp::div, {share, read(2)}), ReductionOp::add)
      .build();
}

std::set<std::string> steps_of(const Candidate& candidate) {
  std::set<std::string> steps;
  for (const Step& step : candidate.steps) steps.insert(describe(step));
  return steps;
}

TEST(ShapesBeside, ProductsBesideTheMainGroupHaveThemInTheSpace) {
  testing::SpaceGuesses guesses(votes(), {});
  EXPECT_EQ(guesses.values(0).at("rule.product_across"), 1);
  const std::set<std::string> usual = steps_of(guesses.space->candidate(guesses.points.front()));
  EXPECT_THAT(usual, ::testing::Contains(::testing::HasSubstr("split(votes.i, 32,"))) << "there are 32 queries";
  std::set<std::int64_t> shapes;
  for (std::size_t k = 0; k < 8; ++k) {
    const std::int64_t shape = guesses.values(k).at("shape_beside");
    if (shape == 0 || !shapes.insert(shape).second) continue;
    const Candidate candidate = guesses.space->candidate(guesses.points[k]);
    ASSERT_EQ(candidate.infeasible, "");
    for (const std::string& step : steps_of(candidate)) {
      if (!usual.contains(step)) {
        EXPECT_THAT(step, ::testing::AnyOf(::testing::HasSubstr("votes"), ::testing::HasSubstr("again")));
      }
    }
    EXPECT_NE(steps_of(candidate), usual);
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"H", 1}, {"M", 9}, {"N", 200}}, {.tolerance = 6e-3}, {1}), "");
  }
  EXPECT_EQ(shapes.size(), 2U);
}

TEST(ShapesBeside, OneProductHasNone) {
  const std::string cell = "0 <= i < M and 0 <= j < N";
  testing::SpaceGuesses guesses(NestBuilder("one", {{"M", 4096}, {"N", 4096}, {"K", 4096}})
                                    .tensor("a", TensorRole::input, {"M", "K"}, kHalf)
                                    .tensor("b", TensorRole::input, {"N", "K"}, kHalf)
                                    .tensor("c", TensorRole::output, {"M", "N"})
                                    .statement("init[i, j] : " + cell, "c[i, j]", {}, number(0))
                                    .statement("c[i, j, k] : " + cell + " and 0 <= k < K", "c[i, j]", {"a[i, k]", "b[j, k]"},
                                               wide(0) * wide(1), ReductionOp::add)
                                    .build(),
                                {});
  EXPECT_FALSE(guesses.values(0).contains("shape_beside"));
}

}  // namespace
}  // namespace nestor
