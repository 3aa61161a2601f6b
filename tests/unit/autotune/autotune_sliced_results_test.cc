// Results that are slices of one product of matrices: kernels of their own, each on tensor cores.
#include "autotune/space/structure/group_search.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

/// line[m, t] = sum over k of x[m, k] w[t, k], of which a, b and c each have a third of the columns. `apart`: three sums.
Nest thirds(bool apart) {
  const std::string part = " : 0 <= m < M and 0 <= o < O", all = " : 0 <= m < M and 0 <= t < 3 O";
  const ScalarExpr product = wide(0) * wide(1), narrow = ScalarExpr::cast(kHalf, read(0));
  NestBuilder nest("thirds", {{"M", 8192}, {"O", 4096}, {"K", 4096}});
  nest.context("M >= 1 and O >= 1 and K >= 1")
      .tensor("x", TensorRole::input, {"M", "K"}, kHalf)
      .tensor("w", TensorRole::input, {"3 O", "K"}, kHalf);
  if (!apart) {
    nest.tensor("line", TensorRole::temporary, {"M", "3 O"})
        .statement("line_init[m, t]" + all, "line[m, t]", {}, number(0))
        .statement("line[m, t, k]" + all + " and 0 <= k < K", "line[m, t]", {"x[m, k]", "w[t, k]"}, product, ReductionOp::add);
  }
  int first = 0;
  for (const std::string name : {"a", "b", "c"}) {
    const std::string place = "o + " + std::to_string(first++) + " O", sum = name + "_sum";
    nest.tensor(name, TensorRole::output, {"M", "O"}, kHalf);
    if (apart) {
      nest.tensor(sum, TensorRole::temporary, {"M", "O"})
          .statement(sum + "_init[m, o]" + part, sum + "[m, o]", {}, number(0))
          .statement(sum + "[m, o, k]" + part + " and 0 <= k < K", sum + "[m, o]", {"x[m, k]", "w[" + place + ", k]"}, product,
                     ReductionOp::add);
    }
    nest.statement(name + "[m, o]" + part, name + "[m, o]", {apart ? sum + "[m, o]" : "line[m, " + place + "]"}, narrow);
  }
  return nest.build();
}

class Thirds : public ::testing::TestWithParam<bool> {};

TEST_P(Thirds, AreKernelsOfTheirOwnOnTensorCores) {
  testing::SpaceGuesses guesses(thirds(GetParam()), {{"M", 8192}, {"O", 4096}, {"K", 4096}});
  EXPECT_EQ(value_or(guesses.values(0), "fusion", -1), place_of(Fusion::connected));
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  EXPECT_EQ(compiled.plans->kernels.size(), 3U);
  EXPECT_TRUE(std::all_of(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                          [](const auto& kernel) { return kernel.tensor.has_value(); }));
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"M", 72}, {"O", 88}, {"K", 80}}, {.tolerance = 1e-2}, {1}), "");
}

TEST_P(Thirds, OfFewRowsAreOneKernelAsBefore) {
  testing::SpaceGuesses guesses(thirds(GetParam()), {{"M", 512}, {"O", 512}, {"K", 4096}});
  EXPECT_FALSE(guesses.has_rule(0, "slice_results"));
  if (GetParam()) {
    EXPECT_NE(value_or(guesses.values(0), "fusion", -1), place_of(Fusion::connected));
  }
}

INSTANTIATE_TEST_SUITE_P(SlicedResults, Thirds, ::testing::Bool());

}  // namespace
}  // namespace nestor
