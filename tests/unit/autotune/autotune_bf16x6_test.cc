// Products of f32 in the space: first guesses have them as products of parts on tensor cores, and are right to the last bits of f32.
#include "codegen/gpu/kernel/kernel_split.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/simt/proof/launch_check.h"
#include "codegen/tile/analysis/tile_rewrite.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

namespace nestor {
namespace {

using namespace samples;

struct Guesses : testing::SpaceGuesses {
  using SpaceGuesses::SpaceGuesses;

  /// The point's kernel on tensor cores, emulated at ragged sizes beside the definition.
  std::string wrong(const Point& point, const Sizes& ragged, double tolerance = 3e-6) {
    const CompiledNvptx compiled = compile_nvptx(program(point), {});
    if (!compiled.plans->kernels.back().tensor) return "no tensor cores";
    return testing::run_emulated(compiled, meaning(), ragged, {.tolerance = tolerance}, {1});
  }

  bool in_parts(std::size_t k) const { return has_rule(k, "bf16x6"); }
};

const Sizes kLarge{{"M", 2048}, {"N", 2048}, {"K", 1024}};

TEST(Bf16x6Space, FirstGuessesHaveProductsOfParts) {
  Guesses guesses(f32_product(), kLarge);
  for (const std::size_t k : {0U, 1U, 2U}) {
    EXPECT_TRUE(guesses.in_parts(k)) << k;
    EXPECT_EQ(guesses.wrong(guesses.points.at(k), {{"M", 70}, {"N", 132}, {"K", 75}}), "") << k;
  }
  std::size_t on_lanes = 0;
  while (on_lanes < guesses.points.size() && guesses.in_parts(on_lanes)) ++on_lanes;
  EXPECT_LT(on_lanes, guesses.points.size()) << "plain lanes are tried, too";
}

/// Of terms along several dims the outer ones are loops around tiles of the innermost, whose size is known then.
TEST(Bf16x6Space, TermsMayRunAlongSeveralDims) {
  const Sizes sizes{{"M", 2048}, {"N", 1024}, {"K", 200}};
  EXPECT_THAT(sizes_known_to_products(f32_taps(), sizes), ::testing::ElementsAre("K"));
  EXPECT_THAT(sizes_known_to_products(f32_taps(), {{"M", 128}, {"N", 128}, {"K", 200}}), ::testing::IsEmpty()) << "small";
  Guesses guesses(fix_sizes(f32_taps(), {{"K", 200}}), sizes);
  for (const std::size_t k : {0U, 1U, 2U}) {
    EXPECT_TRUE(guesses.in_parts(k)) << k;
    EXPECT_EQ(guesses.wrong(guesses.points.at(k), {{"M", 70}, {"N", 132}, {"K", 200}}), "") << k;
  }
}

/// Rows of tiles are the outer ones of the result, whichever operand they come from: parts have an index of their own behind those.
TEST(Bf16x6Space, RowsAreTheOuterOnesOfTheResult) {
  const std::string pair = "0 <= b < B and 0 <= j < N and 0 <= i < M";
  const Nest nest = NestBuilder("turned", {{"B", 256}, {"M", 181}, {"N", 256}, {"K", 360}})
                        .tensor("x", TensorRole::input, {"B", "M", "K"})
                        .tensor("y", TensorRole::input, {"N", "K"})
                        .tensor("sums", TensorRole::temporary, {"B", "N", "M"})
                        .tensor("out", TensorRole::output, {"B", "N", "M"})
                        .statement("init[b, j, i] : " + pair, "sums[b, j, i]", {}, number(0))
                        .statement("sum[b, j, i, k] : " + pair + " and 0 <= k < K", "sums[b, j, i]", {"x[b, i, k]", "y[j, k]"},
                                   read(0) * read(1), ReductionOp::add)
                        .statement("out[b, j, i] : " + pair, "out[b, j, i]", {"sums[b, j, i]"}, read(0))
                        .build();
  Guesses guesses(nest, {});
  const auto is_oblong = [&](std::size_t k) {  // such tiles do not fit turned
    const NamedValues values = guesses.values(k);
    return guesses.in_parts(k) &&
           value_or(values, "columns", 0) != 64 * value_or(values, "warpgroups", 0) * value_or(values, "row_tiles", 1);
  };
  std::size_t k = 0;
  while (k < guesses.points.size() && !is_oblong(k)) ++k;
  ASSERT_LT(k, guesses.points.size());
  EXPECT_EQ(guesses.wrong(guesses.points.at(k), {{"B", 2}, {"M", 70}, {"N", 133}, {"K", 75}}), "");
}

/// A function after the product is that of f32: no hardware's tanh, no polynomials.
TEST(Bf16x6Space, FunctionsAreThoseOfF32) {
  for (const ScalarOp function : {ScalarOp::tanh, ScalarOp::exp}) {
    Guesses guesses(f32_product([&](const ScalarExpr& sum) { return ScalarExpr::make(function, {number(0.1F) * sum}); }), kLarge);
    NamedValues values = guesses.values(0);
    ASSERT_EQ(value_or(values, "rule.bf16x6", 0), 1);
    for (const std::int64_t polynomial : {0, 12}) {
      values["exp2_polynomial"] = polynomial;
      const auto point = point_from(*guesses.space, values);
      ASSERT_TRUE(point);
      EXPECT_EQ(guesses.wrong(*point, {{"M", 65}, {"N", 64}, {"K", 66}}), "") << to_string(function) << " " << polynomial;
    }
  }
}

using testing::Seen;

Nest f32_attention(Seen seen) {
  return testing::attention_nest({.seen = seen, .type = ElementType::f32, .result = ElementType::f32});
}

const Sizes kLong{{"H", 32}, {"Q", 1024}, {"K", 1024}};

/// Attention in f32 is one kernel behind those that make parts of its arguments: those of its weights stay in registers.
TEST(Bf16x6Space, AttentionIsOneKernel) {
  for (const Seen seen : {Seen::all, Seen::causal, Seen::window}) {
    Sizes large = kLong, ragged{{"H", 2}, {"Q", 70}, {"K", 133}};
    if (seen == Seen::window) large["W"] = 256, ragged["W"] = 40;
    Guesses guesses(f32_attention(seen), large);
    for (const std::size_t k : {0U, 1U, 2U}) {
      ASSERT_TRUE(guesses.in_parts(k) && guesses.has_rule(k, "online")) << k;
      EXPECT_LE(value_or(guesses.values(k), "columns", 0), 64) << "terms of a sum of parts";
      EXPECT_EQ(guesses.wrong(guesses.points.at(k), ragged), "") << k;
    }
    const CompiledNvptx compiled = compile_nvptx(guesses.program(0), {});
    EXPECT_LE(compiled.plans->kernels.size(), 4U);
    EXPECT_FALSE(compiled.plans->kernels.front().tensor) << "parts of an argument";
  }
}

/// Ops of one kernel's body, in order.
void collect(const TileTree& tree, std::vector<TileOp>& ops) {
  if (tree->kind == TileNode::Kind::op) ops.push_back(tree->op);
  for (const TileTree& child : tree->children) collect(child, ops);
}

/// The tree with what `change` makes of each op; nothing: without it.
TileTree changed(const TileTree& tree, const std::function<std::vector<TileOp>(const TileOp&)>& change) {
  if (tree->kind == TileNode::Kind::op) {
    std::vector<TileTree> ops;
    for (TileOp& op : change(tree->op)) ops.push_back(nvptx::make_op(std::move(op)));
    return nvptx::make_sequence(std::move(ops));
  }
  TileNode node = *tree;
  for (TileTree& child : node.children) child = changed(child, change);
  return std::make_shared<const TileNode>(std::move(node));
}

TEST(Bf16x6Space, LaunchesOfOtherSumsOfPartsHaveNoProof) {
  Guesses guesses(f32_attention(Seen::all), kLong);
  const nvptx::LaunchPlan plan = nvptx::plan_launches(guesses.program(0), 128);
  ASSERT_THAT(nvptx::check_launches(plan), ::testing::IsEmpty());
  std::vector<TileOp> ops;
  collect(plan.kernels.back().body, ops);
  const auto of = [&](const std::string& name) {
    return std::count_if(ops.begin(), ops.end(), [&](const TileOp& op) { return op.name == name; });
  };
  ASSERT_EQ(of("weighted"), 6);
  ASSERT_EQ(of("dot"), 6);
  ASSERT_EQ(of("weighted_add"), 1);
  int number = 0;  // of the product at hand
  const auto at_product = [&](int wanted, const std::function<std::vector<TileOp>(TileOp)>& change) {
    return [&number, wanted, change](const TileOp& op) {
      if (op.name == "weighted" && op.reduction && number++ == wanted) return change(op);
      return std::vector{op};
    };
  };
  const auto at_sum = [](const std::function<std::vector<TileOp>(TileOp)>& change) {
    return [change](const TileOp& op) { return op.name == "weighted_add" ? change(op) : std::vector{op}; };
  };
  using Change = std::function<std::vector<TileOp>(const TileOp&)>;
  const auto none = [](const TileOp&) { return std::vector<TileOp>{}; };
  const auto twice = [](const TileOp& op) { return std::vector{op, op}; };
  const std::vector<std::pair<std::string, Change>> changes{
      {"a product left out", at_product(3, none)},
      {"the last left out", at_product(5, none)},
      {"a product twice", at_product(2, twice)},
      {"another part", at_product(1, [&](TileOp op) { return op.reads[0] = ops.back().reads[0], std::vector{op}; })},
      {"operands of another product",
       at_product(0, [](TileOp op) { return std::swap(op.reads[0], op.reads[1]), std::vector{op}; })},
      {"it does not start anew", at_product(0, [](TileOp op) { return op.initialize = false, std::vector{op}; })},
      {"it starts anew twice", at_product(4, [](TileOp op) { return op.initialize = true, std::vector{op}; })},
      {"a product beside", at_product(3, [&](TileOp op) { return op.write.buffer = ops.back().write.buffer, std::vector{op}; })},
      {"no sum", at_sum(none)},
      {"the sum twice", at_sum(twice)},
      {"its sum with itself", at_sum([](TileOp op) { return op.reads[0] = op.reads[1], std::vector{op}; })},
      {"the sum before", at_sum([](TileOp op) { return op.reads[1] = op.reads[0], std::vector{op}; })},
      {"elsewhere", at_sum([](TileOp op) { return op.write.buffer = op.reads[1].buffer, std::vector{op}; })},
      {"a difference",
       at_sum([](TileOp op) { return op.value = ScalarExpr::make(ScalarOp::sub, op.value.args()), std::vector{op}; })},
      {"fewer rows", at_sum([](TileOp op) { return op.dims.back().upper = op.dims.back().upper - IntExpr(1), std::vector{op}; })},
  };
  for (const auto& [what, change] : changes) {
    nvptx::LaunchPlan wrong = plan;
    number = 0;
    wrong.kernels.back().body = changed(plan.kernels.back().body, change);
    EXPECT_THAT(nvptx::check_launches(wrong), ::testing::Not(::testing::IsEmpty())) << what;
  }
}

/// Every product of a chain has tensor cores; parts of what one stores, which the next multiplies, are made once, in kernels of their own.
TEST(Bf16x6Space, ChainsOfProductsHaveAKernelForEach) {
  Guesses guesses(f32_chain(), {{"M", 1024}});
  for (const std::size_t k : {0U, 1U}) {
    ASSERT_TRUE(guesses.in_parts(k)) << k;
    const CompiledNvptx compiled = compile_nvptx(guesses.program(k), {});
    const auto& kernels = compiled.plans->kernels;
    EXPECT_EQ(std::count_if(kernels.begin(), kernels.end(), [](const auto& kernel) { return kernel.tensor; }), 3) << k;
    EXPECT_EQ(kernels.size(), 7U) << "parts of y, x, square and half, and three products";
    EXPECT_EQ(guesses.wrong(guesses.points.at(k), {{"M", 69}}, 3e-4), "") << "terms are 100 times their sum: " << k;
  }
}

/// A triangular matrix has zeros beside it first: tiles of products have whole rows of terms.
TEST(Bf16x6Space, RowsUnderATriangleAreMadeWhole) {
  const std::string cell = "0 <= m < M and 0 <= n < N";
  const Nest triangle = NestBuilder("triangle", {{"M", 8192}, {"N", 512}})
                            .tensor("x", TensorRole::input, {"M", "N"})
                            .tensor("w", TensorRole::input, {"N", "N"})
                            .tensor("r", TensorRole::temporary, {"M", "N"})
                            .tensor("out", TensorRole::output, {"M", "N"})
                            .statement("r_init[m, n] : " + cell, "r[m, n]", {}, number(0))
                            .statement("r_sum[m, n, k] : " + cell + " and 0 <= k <= n", "r[m, n]", {"w[n, k]", "x[m, k]"},
                                       read(0) * read(1), ReductionOp::add)
                            .statement("out[m, n] : " + cell, "out[m, n]", {"r[m, n]"}, read(0) * number(0.5))
                            .build();
  Guesses guesses(triangle, {});
  ASSERT_TRUE(guesses.in_parts(0));
  EXPECT_TRUE(guesses.has_rule(0, "zero_terms"));
  EXPECT_EQ(guesses.wrong(guesses.points.at(0), {{"M", 70}, {"N", 132}}), "");
}

TEST(Bf16x6Space, SmallProductsStayOnLanes) {
  Guesses guesses(f32_product(), {{"M", 256}, {"N", 256}, {"K", 256}});
  EXPECT_FALSE(guesses.in_parts(0));
}

}  // namespace
}  // namespace nestor
