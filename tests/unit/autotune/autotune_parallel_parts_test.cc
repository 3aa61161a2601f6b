// What is made of a product, beside it in one result: nobody waits for another kernel's statements along a loop that could be parallel, and
// the start of another kernel's sum is no part of a product's.
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/structure/rule_variants.h"
#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"
#include "unit/autotune/candidate_steps.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

ScalarExpr narrow(const ScalarExpr& value) { return ScalarExpr::cast(kHalf, value); }

/// Maps of a product, and a filter of each of them behind all maps: out[n, 0 .. H - 1] and out[n, H .. 2 H - 1].
Nest maps_and_filtered_maps() {
  const std::string map = "0 <= n < N and 0 <= w < 48 and 0 <= s < S";
  return NestBuilder("maps_and_filtered_maps", {{"N", 6}, {"S", 96}})
      .tensor("x", TensorRole::input, {"N", "64", "S"}, kHalf)
      .tensor("weight", TensorRole::input, {"48", "64"}, kHalf)
      .tensor("filter", TensorRole::input, {"48", "3"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"N", "48", "S"})
      .tensor("map", TensorRole::temporary, {"N", "48", "S"}, kHalf)
      .tensor("filtered_sum", TensorRole::temporary, {"N", "48", "S"})
      .tensor("filtered", TensorRole::temporary, {"N", "48", "S"}, kHalf)
      .tensor("out", TensorRole::output, {"N", "96", "S"}, kHalf)
      .statement("sum_init[n, w, s] : " + map, "sum[n, w, s]", {}, number(0))
      .statement("sum[n, w, s, c] : " + map + " and 0 <= c < 64", "sum[n, w, s]", {"x[n, c, s]", "weight[w, c]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("map[n, w, s] : " + map, "map[n, w, s]", {"sum[n, w, s]"}, narrow(read(0)))
      .statement("filtered_init[n, w, s] : " + map, "filtered_sum[n, w, s]", {}, number(0))
      .statement("filtered_sum[n, w, s, u] : " + map + " and 0 <= u < 3 and 0 <= s + u - 1 < S", "filtered_sum[n, w, s]",
                 {"map[n, w, s + u - 1]", "filter[w, u]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("filtered[n, w, s] : " + map, "filtered[n, w, s]", {"filtered_sum[n, w, s]"}, narrow(read(0)))
      .statement("low[n, w, s] : " + map, "out[n, w, s]", {"map[n, w, s]"}, read(0, kHalf))
      .statement("high[n, w, s] : 0 <= n < N and 48 <= w < 96 and 0 <= s < S", "out[n, w, s]", {"filtered[n, w - 48, s]"},
                 read(0, kHalf))
      .build();
}

struct Groups {
  explicit Groups(const Nest& nest)
      : sizes(complete_sizes(nest, {})), schedules(nest_for_tuning(nest, sizes)), variants(schedules, sizes) {}
  const RuleVariant& variant() { return variants.at({{"reassociate"}}); }
  /// The group that has the statement.
  const FusionGroup& with(const std::string& statement, Fusion fusion) {
    for (const FusionGroup& group : variants.fusion_groups(variant(), fusion)) {
      if (has(group, statement)) return group;
    }
    internal_error("no group has {}", statement);
  }
  bool has(const FusionGroup& group, const std::string& statement) {
    return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
      const auto& names = variant().structure.loop_groups[static_cast<std::size_t>(u)].statements;
      return std::find(names.begin(), names.end(), statement) != names.end();
    });
  }
  Sizes sizes;
  BaseSchedules schedules;
  RuleVariants variants;
};

TEST(ParallelParts, FusedStatementsKeepTheParallelLoopsThatEachHasAlone) {
  Groups groups(maps_and_filtered_maps());
  const FusionGroup& all = groups.with("high", Fusion::maximal);
  EXPECT_TRUE(groups.has(all, "filtered"));
  EXPECT_FALSE(serial_axes(all).empty()) << "what is behind all maps waits for a map along them";
  for (const Fusion fusion : {Fusion::careful, Fusion::related, Fusion::alike, Fusion::connected}) {
    const FusionGroup& group = groups.with("high", fusion);
    EXPECT_FALSE(groups.has(group, "filtered"));
    EXPECT_TRUE(serial_axes(group).empty());
    EXPECT_TRUE(serial_axes(groups.with("filtered", fusion)).empty());
    EXPECT_TRUE(groups.has(groups.with("filtered", fusion), "filtered_sum")) << "what does not wait stays together";
  }
}

TEST(ParallelParts, TheStartOfASumGoesWithTheSum) {
  Groups groups(maps_and_filtered_maps());
  for (const Fusion fusion : {Fusion::careful, Fusion::maximal, Fusion::related, Fusion::alike, Fusion::connected}) {
    const FusionGroup& product = groups.with("sum", fusion);
    EXPECT_FALSE(groups.has(product, "filtered_init"));
    EXPECT_TRUE(groups.has(groups.with("filtered_sum", fusion), "filtered_init"));
    EXPECT_TRUE(tensor_axes_of(groups.variants, groups.variant(), product, 90).has_value());
  }
}

TEST(ParallelParts, AStatementThatSharesNothingWithAProductHasNoPlaceInItsTiles) {
  Groups groups(maps_and_filtered_maps());
  const FusionGroup& product = groups.with("sum", Fusion::careful);
  const auto axes_with = [&](const std::string& name) {
    FusionGroup more = product;
    const FusionGroup& other = groups.with(name, Fusion::none);
    more.loop_groups.insert(more.loop_groups.end(), other.loop_groups.begin(), other.loop_groups.end());
    return tensor_axes(groups.variants.nest(groups.variant()), groups.variant().structure, more, 90);
  };
  EXPECT_TRUE(axes_with("low")) << "it stores what is made of the product";
  EXPECT_FALSE(axes_with("filtered_init"));
}

/// Running sums of a product: of more terms, summed one by one, than the product has.
Nest running_sums_of_a_product() {
  const std::string element = "0 <= i < I and 0 <= j < J";
  return NestBuilder("running_sums_of_a_product", {{"I", 128}, {"J", 512}})
      .tensor("x", TensorRole::input, {"I", "64"}, kHalf)
      .tensor("w", TensorRole::input, {"J", "64"}, kHalf)
      .tensor("s", TensorRole::temporary, {"I", "J"})
      .tensor("out", TensorRole::output, {"I", "J"})
      .statement("s_init[i, j] : " + element, "s[i, j]", {}, number(0))
      .statement("s[i, j, c] : " + element + " and 0 <= c < 64", "s[i, j]", {"x[i, c]", "w[j, c]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("out_init[i, j] : " + element, "out[i, j]", {}, number(0))
      .statement("out[i, j, l] : " + element + " and j <= l < J", "out[i, j]", {"s[i, l]"}, read(0), ReductionOp::add)
      .build();
}

TEST(ParallelParts, RunningSumsWeighAsOnePassAndLeaveTensorCoresToTheProduct) {
  Groups groups(running_sums_of_a_product());
  EXPECT_TRUE(groups.has(groups.variants.heaviest(groups.variant(), Fusion::none), "s"));
  SearchedProblem problem(running_sums_of_a_product(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_TRUE(
      std::any_of(candidate.steps.begin(), candidate.steps.end(), [](const Step& step) { return step.name == "tensor_cores"; }));
  for (const Sizes& sizes : {Sizes{{"I", 70}, {"J", 130}}, Sizes{{"I", 1}, {"J", 5}}})
    EXPECT_EQ(problem.difference(first, sizes, 1e-3), "");
}

TEST(ParallelParts, TheFirstGuessIsRight) {
  SearchedProblem problem(maps_and_filtered_maps(), {});
  const Point first = problem.space->defaults().front();
  const Candidate candidate = problem.space->candidate(first);
  ASSERT_EQ(candidate.infeasible, "");
  EXPECT_EQ(testing::count_steps(candidate, "tensor_cores"), 1);
  for (const Sizes& sizes : {Sizes{{"N", 2}, {"S", 72}}, Sizes{{"N", 1}, {"S", 8}}})
    EXPECT_EQ(problem.difference(first, sizes, 2e-3), "");
}

}  // namespace
}  // namespace nestor
