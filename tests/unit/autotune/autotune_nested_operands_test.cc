// Sums whose inner sums are an operand: two kernels of products and their parts, and what the proof of launches says of sums of several products
// over taps.
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/simt/proof/launch_check.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/nests/chained_products.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace nestor {
namespace {

using samples::directional_messages;
using ::testing::IsEmpty;
using ::testing::Not;

const samples::Messages kMessages{.turns = "12", .angles = "8", .width = "64", .outputs = "64"};
const Sizes kMany{{"E", 16384}, {"T", 1}, {"A", 1}};

struct Guesses : testing::SpaceGuesses {
  using SpaceGuesses::SpaceGuesses;
  bool nests(std::size_t k) const { return has_rule(k, "nest_operands"); }
};

TEST(NestedOperands, TheFirstGuessesHaveProductsOfInnerSums) {
  Guesses guesses(directional_messages(kMessages), kMany);
  for (const std::size_t k : {0U, 1U}) {
    ASSERT_TRUE(guesses.nests(k) && guesses.has_rule(k, "bf16x3")) << k;
    EXPECT_FALSE(guesses.has_rule(k, "round_operand")) << "the definition has no such operand";
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    ASSERT_TRUE(compiled.plans->kernels.back().tensor);
    int products = 0, seldom = 0;
    for (const nvptx::TensorOp& op : compiled.plans->kernels.back().tensor->ops) {
      products += op.kind == nvptx::TensorOp::Kind::product ? 1 : 0;
      seldom += op.kind == nvptx::TensorOp::Kind::seldom ? 1 : 0;
    }
    EXPECT_EQ(products, 3);
    EXPECT_EQ(seldom, 1) << "direct sums";
    for (const std::int64_t edges : {1, 67})
      EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"E", edges}}, {.tolerance = 1e-3}, {1}), "") << edges;
  }
}

TEST(NestedOperands, ChainsOfMatricesInOneExpressionAreTwoProducts) {
  for (const bool one_sum : {false, true}) {
    Guesses guesses(samples::long_chain(ElementType::bf16, one_sum, "520"), {{"N", 2048}, {"J", 64}, {"K", 2048}});
    EXPECT_EQ(guesses.nests(0), one_sum);
    ASSERT_TRUE(guesses.has_rule(0, "bf16x3"));
    EXPECT_FALSE(guesses.has_rule(0, "round_operand"));
    const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
    EXPECT_EQ(std::count_if(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                            [](const auto& kernel) { return kernel.tensor.has_value(); }),
              2)
        << "the inner sums, and what they are an operand of";
    EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), {{"N", 19}, {"J", 24}, {"K", 72}}, {.tolerance = 0.016}, {1}),
              "")
        << one_sum;
  }
}

TEST(NestedOperands, WeightsThatComeFirstAreForDirectSums) {
  Guesses guesses(samples::weights_first(), {});
  ASSERT_TRUE(guesses.has_rule(0, "chain_order") && guesses.has_rule(0, "bf16x3"));
  EXPECT_FALSE(guesses.has_rule(0, "round_operand"));
  const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
  EXPECT_EQ(std::count_if(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                          [](const auto& kernel) { return kernel.tensor.has_value(); }),
            3)
      << "weights, inner sums, and what those are an operand of";
  Sizes small{{"N", 19}, {"I", 40}, {"J", 24}, {"K", 72}};
  for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) small.erase(name);
  EXPECT_EQ(testing::run_emulated(compiled, guesses.meaning(), small, {.tolerance = 0.016}, {1}), "");
  EXPECT_FALSE(Guesses(samples::weights_first(ElementType::bf16, 2048), {}).has_rule(0, "chain_order")) << "as many terms";
}

TEST(NestedOperands, FewResultsShareNoInnerSums) {
  samples::Messages few = kMessages;
  few.outputs = "4";
  EXPECT_FALSE(Guesses(directional_messages(few), kMany).nests(0));
}

/// The tree with what `change` makes of each node of ops.
TileTree changed(const TileTree& tree, const std::function<TileTree(const TileTree&)>& change) {
  TileNode node = *tree;
  for (TileTree& child : node.children) child = changed(child, change);
  return change(std::make_shared<const TileNode>(std::move(node)));
}

TEST(NestedOperands, SumsOfProductsOverTapsAreAddedUpInEachIteration) {
  Guesses guesses(directional_messages(kMessages), kMany);
  const nvptx::LaunchPlan plan = nvptx::plan_launches(guesses.program(0), 128);
  ASSERT_THAT(nvptx::check_launches(plan), IsEmpty());
  const auto is_op = [](const TileTree& node, const char* name) {
    return node->kind == TileNode::Kind::op && node->op.name == name;
  };
  int loops = 0;
  const auto rejected = [&](const std::function<TileTree(const TileTree&)>& change) {
    nvptx::LaunchPlan wrong = plan;
    wrong.kernels.back().body = changed(plan.kernels.back().body, change);
    return !nvptx::check_launches(wrong).empty();
  };
  const auto with = [](const TileTree& node, const std::function<void(TileNode&)>& edit) {
    TileNode copy = *node;
    edit(copy);
    return std::make_shared<const TileNode>(std::move(copy));
  };
  const auto is_loop = [&](const TileTree& node) { return node->kind == TileNode::Kind::loop && node->children.size() == 1; };
  EXPECT_FALSE(rejected([&](const TileTree& node) { return loops += is_loop(node) ? 1 : 0, node; }));
  ASSERT_EQ(loops, 1) << "angles";
  EXPECT_TRUE(rejected([&](const TileTree& node) {
    return is_op(node, "sums_product_sum") ? with(node, [](TileNode& op) { op.op.initialize = false; }) : node;
  })) << "no iteration starts anew";
  EXPECT_TRUE(rejected([&](const TileTree& node) {
    return is_op(node, "sums_product_sum_add") ? nvptx::make_sequence({node, node}) : node;
  })) << "added twice";
  EXPECT_TRUE(rejected([&](const TileTree& node) {
    if (!is_loop(node)) return node;
    // The sum of the last iteration alone.
    std::vector<TileTree> inside = node->children.front()->children;
    const TileTree add = inside.back();
    inside.pop_back();
    return nvptx::make_sequence({with(node, [&](TileNode& loop) { loop.children = {nvptx::make_sequence(inside)}; }), add});
  })) << "behind the loop";
  EXPECT_TRUE(rejected([&](const TileTree& node) {
    if (!is_loop(node)) return node;
    // Parts in loops of their own: each would add to what the last iteration of the one before has left.
    std::vector<TileTree> loops_of;
    for (const TileTree& child : node->children.front()->children)
      loops_of.push_back(with(node, [&](TileNode& loop) { loop.children = {child}; }));
    return nvptx::make_sequence(loops_of);
  })) << "loops of their own";
  EXPECT_TRUE(rejected([&](const TileTree& node) {
    return is_loop(node) ? with(node, [](TileNode& loop) { loop.upper = loop.upper - IntExpr(1); }) : node;
  })) << "an angle left out";
}

}  // namespace
}  // namespace nestor
