// What stands beside products, parts of sums, and sums over pairs: statements that one kernel can have together are not left to kernels of
// their own.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/space/structure/rule_steps.h"
#include "autotune/space/structure/rule_variants.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/half_values.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace nestor {
namespace {

using namespace samples;

/// A norm of groups of four channels over all places, an activation, and a product over all channels.
Nest norm_active_product() {
  const std::string group = "0 <= n < B and 0 <= g < 32", place = "0 <= n < B and 0 <= y < S and 0 <= z < S",
                    point = place + " and 0 <= g < 32 and 0 <= u < 4", cell = place + " and 0 <= m < N";
  const ScalarExpr normed = (wide(0) - read(1) * number(0.01)) * apply(ScalarOp::rsqrt, read(2) + number(1)),
                   active = read(0) / (number(1) + apply(ScalarOp::exp, number(0) - read(0)));
  NestBuilder builder("norm_active_product", {{"B", 2}, {"S", 20}, {"N", 64}});
  builder.tensor("x", TensorRole::input, {"B", "S", "S", "32", "4"}, kHalf)
      .tensor("w", TensorRole::input, {"N", "32", "4"}, kHalf)
      .tensor("total", TensorRole::temporary, {"B", "32"})
      .tensor("squares", TensorRole::temporary, {"B", "32"})
      .tensor("normed", TensorRole::temporary, {"B", "S", "S", "32", "4"})
      .tensor("active", TensorRole::temporary, {"B", "S", "S", "32", "4"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "S", "S", "N"})
      .tensor("out", TensorRole::output, {"B", "S", "S", "N"}, kHalf);
  for (const std::string sum : {"total", "squares"}) {
    builder.statement(sum + "_init[n, g] : " + group, sum + "[n, g]", {}, number(0))
        .statement(sum + "[n, y, z, g, u] : " + point, sum + "[n, g]", {"x[n, y, z, g, u]"},
                   sum == "total" ? wide(0) : wide(0) * wide(0), ReductionOp::add);
  }
  return builder
      .statement("normed[n, y, z, g, u] : " + point, "normed[n, y, z, g, u]",
                 {"x[n, y, z, g, u]", "total[n, g]", "squares[n, g]"}, normed)
      .statement("active[n, y, z, g, u] : " + point, "active[n, y, z, g, u]", {"normed[n, y, z, g, u]"},
                 ScalarExpr::cast(kHalf, active))
      .statement("sum_init[n, y, z, m] : " + cell, "sum[n, y, z, m]", {}, number(0))
      .statement("sum[n, y, z, m, g, u] : " + cell + " and 0 <= g < 32 and 0 <= u < 4", "sum[n, y, z, m]",
                 {"active[n, y, z, g, u]", "w[m, g, u]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, z, m] : " + cell, "out[n, y, z, m]", {"sum[n, y, z, m]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

/// The first guess that fits.
struct Guess {
  Guess(const Nest& nest, const Sizes& given)
      : sizes(complete_sizes(nest, given)),
        schedules(nest_for_tuning(nest, sizes)),
        space(make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132))) {
    for (const Point& point : space->defaults()) {
      candidate = space->candidate(point);
      if (candidate.infeasible.empty()) break;
    }
  }
  TileProgram program() { return build_tile_program(schedules.replay(candidate.steps)); }
  std::string difference(Sizes ragged) {
    const CompiledNvptx compiled = compile_nvptx(program(), {});
    for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) ragged.erase(name);
    return testing::run_emulated(compiled, build_tile_program(schedules.base({})), ragged, {.tolerance = 4e-3}, {1});
  }
  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  Candidate candidate;
};

bool is_kept(const TileProgram& program, const std::string& tensor) {
  const auto found =
      std::find_if(program.buffers.begin(), program.buffers.end(), [&](const Buffer& buffer) { return buffer.name == tensor; });
  return found != program.buffers.end() && found->memory == Memory::scratch;
}

TEST(BesideProducts, BothSumsHaveOneKernelAndWhatOneReaderNeedsStaysInIt) {
  Guess guess(norm_active_product(), {{"B", 16}, {"S", 64}, {"N", 128}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  const TileProgram program = guess.program();
  const auto plans = plan_kernels(program, {});
  ASSERT_EQ(plans->kernels.size(), 4U) << "statistics, operand, the weights' terms, product";
  EXPECT_TRUE(is_kept(program, "normed"));
  EXPECT_EQ(plans->kernels.front().bodies.front().all_threads(), 64) << "as many as places in a row: others would be idle";
  EXPECT_EQ(guess.difference({{"B", 2}, {"S", 5}, {"N", 40}}), "");
}

/// A norm of groups of ten channels, which lie last, over all places.
Nest norm_of_groups() {
  const std::string group = "0 <= n < B and 0 <= g < 8", point = group + " and 0 <= s < S and 0 <= c < 10";
  const ScalarExpr count = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)) * number(10), apart = wide(0) - read(1);
  return NestBuilder("norm_of_groups", {{"B", 3}, {"S", 1500}})
      .tensor("x", TensorRole::input, {"B", "S", "8", "10"}, kHalf)
      .tensor("total", TensorRole::temporary, {"B", "8"})
      .tensor("mean", TensorRole::temporary, {"B", "8"})
      .tensor("squares", TensorRole::temporary, {"B", "8"})
      .tensor("scale", TensorRole::temporary, {"B", "8"})
      .tensor("y", TensorRole::output, {"B", "S", "8", "10"}, kHalf)
      .statement("total_init[n, g] : " + group, "total[n, g]", {}, number(0))
      .statement("total[n, g, s, c] : " + point, "total[n, g]", {"x[n, s, g, c]"}, wide(0), ReductionOp::add)
      .statement("mean[n, g] : " + group, "mean[n, g]", {"total[n, g]"}, read(0) / count, std::nullopt, {"S"})
      .statement("squares_init[n, g] : " + group, "squares[n, g]", {}, number(0))
      .statement("squares[n, g, s, c] : " + point, "squares[n, g]", {"x[n, s, g, c]", "mean[n, g]"}, apart * apart,
                 ReductionOp::add)
      .statement("scale[n, g] : " + group, "scale[n, g]", {"squares[n, g]"},
                 apply(ScalarOp::rsqrt, read(0) / count + number(1e-5)), std::nullopt, {"S"})
      .statement("y[n, s, g, c] : " + point, "y[n, s, g, c]", {"x[n, s, g, c]", "mean[n, g]", "scale[n, g]"},
                 ScalarExpr::cast(kHalf, apart * read(2)))
      .build();
}

TEST(PartsOfSums, AreCombinedByOneKernelWhichAlsoStartsTheSums) {
  Guess guess(norm_of_groups(), {{"B", 32}, {"S", 4096}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  const auto plans = plan_kernels(guess.program(), {});
  ASSERT_EQ(plans->kernels.size(), 3U) << "parts, statistics, results";
  const nvptx::BlockPlan& results = plans->kernels.back().bodies.front();
  EXPECT_EQ(results.all_threads(), 160) << "five pairs of a row, in whole warps";
  EXPECT_EQ(results.ops.front().layout.lanes, 5);
  EXPECT_EQ(guess.difference({{"B", 2}, {"S", 133}}), "");
  EXPECT_EQ(guess.difference({{"B", 3}, {"S", 40}}), "");
}

TEST(PartsOfSums, EachStatementIsInOneGroup) {
  for (const Nest& nest : {norm_of_groups(), channel_norm(), norm_active_product(), late_division_norm()}) {
    const Sizes sizes = complete_sizes(nest, {});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    RuleVariants variants(schedules, sizes);
    const RuleVariant& whole = variants.at({{"reassociate"}});
    std::set<int> axes = splittable_axes(schedules, whole.rules, whole.structure);
    axes.insert(-1);
    for (const int axis : axes) {
      const RuleVariant& variant = variants.at({{"reassociate"}, axis, axis < 0 ? 0 : 2});
      std::multiset<int> seen, all;
      for (const FusionGroup& group : find_fusion_groups(variants.base(variant), variant.structure, Fusion::alike))
        seen.insert(group.loop_groups.begin(), group.loop_groups.end());
      for (std::size_t u = 0; u < variant.structure.loop_groups.size(); ++u) all.insert(static_cast<int>(u));
      EXPECT_EQ(seen, all) << nest.op << axis;
    }
  }
}

/// Columns over their sums of magnitudes, and the products of all pairs of columns.
Nest products_of_scaled_columns() {
  const std::string column = "0 <= f < F", point = "0 <= n < N and 0 <= f < F", pair = "0 <= f < F and 0 <= h < F";
  return NestBuilder("products_of_scaled_columns", {{"N", 300}, {"F", 200}})
      .tensor("x", TensorRole::input, {"N", "F"}, kHalf)
      .tensor("total", TensorRole::temporary, {"F"})
      .tensor("scaled", TensorRole::temporary, {"N", "F"}, kHalf)
      .tensor("out", TensorRole::output, {"F", "F"})
      .statement("total_init[f] : " + column, "total[f]", {}, number(0))
      .statement("total[f, n] : " + point, "total[f]", {"x[n, f]"}, apply(ScalarOp::abs, wide(0)), ReductionOp::add)
      .statement("scaled[n, f] : " + point, "scaled[n, f]", {"x[n, f]", "total[f]"},
                 ScalarExpr::cast(kHalf, wide(0) / (read(1) + number(1))))
      .statement("out_init[f, h] : " + pair, "out[f, h]", {}, number(0))
      .statement("out[f, h, n] : " + pair + " and 0 <= n < N", "out[f, h]", {"scaled[n, f]", "scaled[n, h]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .build();
}

int products_on_tensor_cores(const KernelPlans& plans) {
  const auto has_them = [](const auto& kernel) { return kernel.tensor.has_value(); };
  return static_cast<int>(std::count_if(plans.kernels.begin(), plans.kernels.end(), has_them));
}

TEST(BesideProducts, SumsStartInTheKernelOfTheProductAndNotWithWhatStandsBefore) {
  Guess guess(products_of_scaled_columns(), {{"N", 4096}, {"F", 1024}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(products_on_tensor_cores(*plan_kernels(guess.program(), {})), 1);
  EXPECT_EQ(guess.difference({{"N", 70}, {"F", 40}}), "");
}

/// Attention with heads that no block holds: weights of all rows, then means of them.
Nest attention_of_wide_heads() {
  const std::string row = "0 <= s < S", pair = row + " and 0 <= p < P", cell = row + " and 0 <= c < 1024";
  const std::string points = pair + " and 0 <= c < 1024";
  return NestBuilder("attention_of_wide_heads", {{"S", 256}, {"P", 512}})
      .tensor("x", TensorRole::input, {"P", "1024"}, kHalf)
      .tensor("phi", TensorRole::input, {"S", "1024"}, kHalf)
      .tensor("score", TensorRole::temporary, {"S", "P"})
      .tensor("top", TensorRole::temporary, {"S"})
      .tensor("power", TensorRole::temporary, {"S", "P"})
      .tensor("total", TensorRole::temporary, {"S"})
      .tensor("sum", TensorRole::temporary, {"S", "1024"})
      .tensor("out", TensorRole::output, {"S", "1024"}, kHalf)
      .statement("score_init[s, p] : " + pair, "score[s, p]", {}, number(0))
      .statement("score[s, p, c] : " + points, "score[s, p]", {"x[p, c]", "phi[s, c]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("top_init[s] : " + row, "top[s]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[s, p] : " + pair, "top[s]", {"score[s, p]"}, read(0), ReductionOp::max)
      .statement("power[s, p] : " + pair, "power[s, p]", {"score[s, p]", "top[s]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("total_init[s] : " + row, "total[s]", {}, number(0))
      .statement("total[s, p] : " + pair, "total[s]", {"power[s, p]"}, read(0), ReductionOp::add)
      .statement("sum_init[s, c] : " + cell, "sum[s, c]", {}, number(0))
      .statement("sum[s, c, p] : " + points, "sum[s, c]", {"power[s, p]", "x[p, c]"}, read(0) * wide(1), ReductionOp::add)
      .statement("out[s, c] : " + cell, "out[s, c]", {"sum[s, c]", "total[s]"}, ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

TEST(BesideProducts, OfProductsInKernelsApartAsManyAsCanBeHaveTensorCores) {
  Guess guess(attention_of_wide_heads(), {{"S", 512}, {"P", 4096}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  EXPECT_EQ(products_on_tensor_cores(*plan_kernels(guess.program(), {})), 2);
  EXPECT_EQ(guess.difference({{"S", 20}, {"P", 40}}), "");
}

/// Tiles are cut from them, whatever products do with them next.
TEST(KnownSizes, AreNotThoseOfSquareMatrices) {
  Nest square = NestBuilder("cube", {{"N", 64}})
                    .tensor("x", TensorRole::input, {"N", "N"}, kHalf)
                    .tensor("square", TensorRole::temporary, {"N", "N"})
                    .tensor("out", TensorRole::output, {"N", "N"})
                    .statement("square_init[i, j] : 0 <= i < N and 0 <= j < N", "square[i, j]", {}, number(0))
                    .statement("square[i, j, k] : 0 <= i < N and 0 <= j < N and 0 <= k < N", "square[i, j]",
                               {"x[i, k]", "x[j, k]"}, wide(0) * wide(1), ReductionOp::add)
                    .statement("out_init[i, j] : 0 <= i < N and 0 <= j < N", "out[i, j]", {}, number(0))
                    .statement("out[i, j, k] : 0 <= i < N and 0 <= j < N and 0 <= k < N", "out[i, j]",
                               {"square[i, k]", "x[k, j]"}, read(0) * wide(1), ReductionOp::add)
                    .build();
  specialize_product_sizes(square);
  EXPECT_FALSE(square.sizes.at(0).specialized);
}

TEST(PairSums, DistancesAreComputedByEachMinimumInRegisters) {
  Guess guess(nearest_points(), {{"B", 32}, {"N", 2048}, {"M", 2048}});
  ASSERT_EQ(guess.candidate.infeasible, "");
  const TileProgram program = guess.program();
  EXPECT_EQ(plan_kernels(program, {})->kernels.size(), 2U);
  EXPECT_TRUE(std::none_of(program.buffers.begin(), program.buffers.end(), [](const Buffer& buffer) {
    return buffer.memory == Memory::workspace && buffer.extents.size() == 3;
  })) << "a map of all distances";
  EXPECT_EQ(guess.difference({{"B", 3}, {"N", 70}, {"M", 43}}), "");
  EXPECT_EQ(guess.difference({{"B", 1}, {"N", 136}, {"M", 200}}), "");
}

/// Four streams x of each row: a product gives the weights by which these are mixed, sums of four terms for each element.
Nest mixed_streams() {
  const std::string weight = "0 <= r < R and 0 <= s < 4 and 0 <= t < 4", element = "0 <= r < R and 0 <= s < 4 and 0 <= c < C";
  return NestBuilder("mixed_streams", {{"R", 4096}, {"C", 1024}})
      .context("R >= 1 and C >= 1")
      .tensor("x", TensorRole::input, {"R", "4", "C"}, kHalf)
      .tensor("y", TensorRole::input, {"R", "8 * C"}, kHalf)
      .tensor("w", TensorRole::input, {"4", "4", "8 * C"}, kHalf)
      .tensor("found", TensorRole::temporary, {"R", "4", "4"})
      .tensor("weight", TensorRole::temporary, {"R", "4", "4"})
      .tensor("mixed", TensorRole::temporary, {"R", "4", "C"})
      .tensor("out", TensorRole::output, {"R", "4", "C"}, kHalf)
      .statement("found_init[r, s, t] : " + weight, "found[r, s, t]", {}, number(0))
      .statement("found[r, s, t, c] : " + weight + " and 0 <= c < 8 * C", "found[r, s, t]", {"y[r, c]", "w[s, t, c]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("weight[r, s, t] : " + weight, "weight[r, s, t]", {"found[r, s, t]"}, apply(ScalarOp::tanh, read(0)))
      .statement("mixed_init[r, s, c] : " + element, "mixed[r, s, c]", {}, number(0))
      .statement("mixed[r, s, c, t] : " + element + " and 0 <= t < 4", "mixed[r, s, c]", {"weight[r, s, t]", "x[r, t, c]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("out[r, s, c] : " + element, "out[r, s, c]", {"mixed[r, s, c]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

TEST(BesideProducts, AFewRowsOfAFewTermsStayOnLanes) {
  Guess guess(mixed_streams(), {});
  ASSERT_EQ(guess.candidate.infeasible, "");
  std::set<std::string> on_cores;
  for (const Step& step : guess.candidate.steps) {
    if (step.name == "tensor_cores") on_cores.insert(step.args.at(0).get<std::string>());
  }
  ASSERT_EQ(on_cores.size(), 1U) << "the product alone";
  EXPECT_TRUE(on_cores.begin()->starts_with("weight.") || on_cores.begin()->starts_with("found.")) << *on_cores.begin();
  EXPECT_EQ(guess.difference({{"R", 37}, {"C", 72}}), "");
  EXPECT_EQ(guess.difference({{"R", 1}, {"C", 136}}), "");
}

/// bent = tanh(x), out = bent g, slope = out bent, and sums of slope and of slope x over all but groups: gradients of an activation.
Nest activation_gradients() {
  const std::string point = "0 <= z < Z and 0 <= g < G and 0 <= f < F", group = "0 <= g < G";
  NestBuilder builder("activation_gradients", {{"Z", 16384}, {"G", 8}, {"F", 96}});
  builder.context("Z >= 1 and G >= 1 and F >= 1")
      .tensor("x", TensorRole::input, {"Z", "G", "F"})
      .tensor("d", TensorRole::input, {"Z", "G", "F"})
      .tensor("bent", TensorRole::temporary, {"Z", "G", "F"})
      .tensor("slope", TensorRole::temporary, {"Z", "G", "F"})
      .tensor("out", TensorRole::output, {"Z", "G", "F"})
      .tensor("one", TensorRole::output, {"G"})
      .tensor("two", TensorRole::output, {"G"})
      .statement("bent[z, g, f] : " + point, "bent[z, g, f]", {"x[z, g, f]"}, apply(ScalarOp::tanh, read(0)))
      .statement("out[z, g, f] : " + point, "out[z, g, f]", {"bent[z, g, f]", "d[z, g, f]"}, read(0) * read(1))
      .statement("slope[z, g, f] : " + point, "slope[z, g, f]", {"out[z, g, f]", "bent[z, g, f]"}, read(0) * read(1));
  for (const std::string sum : {"one", "two"}) {
    const std::vector<std::string> reads{"slope[z, g, f]", "x[z, g, f]"};
    builder.statement(sum + "_init[g] : " + group, sum + "[g]", {}, number(0))
        .statement(sum + "[g, z, f] : " + point, sum + "[g]", reads, sum == "one" ? read(0) + read(1) : read(0) * read(1),
                   ReductionOp::add);
  }
  return builder.build();
}

TEST(BesideProducts, WhatSumsUpNothingHasOneKernelBesidePartsOfSums) {
  Guess guess(activation_gradients(), {});
  const auto count = [&](const std::string& step, const std::string& start) {
    return std::count_if(guess.candidate.steps.begin(), guess.candidate.steps.end(), [&](const Step& each) {
      return each.name == step && each.args.at(0).get<std::string>().starts_with(start);
    });
  };
  std::size_t tried = 0;
  for (const Point& point : guess.space->defaults()) {
    guess.candidate = guess.space->candidate(point);
    if (!guess.candidate.infeasible.empty() || count("apply_rule", "split_reduction") == 0) continue;
    const auto maps = count("gpu_threads", "bent.") + count("gpu_threads", "out.") + count("gpu_threads", "slope.");
    EXPECT_LE(maps, 1) << "all elementwise statements are one kernel";
    if (maps != 1 || tried++ > 0) continue;
    EXPECT_EQ(guess.difference({{"Z", 37}, {"G", 3}, {"F", 70}}), "");
    EXPECT_EQ(guess.difference({{"Z", 1}, {"G", 9}, {"F", 130}}), "");
  }
  EXPECT_GT(tried, 0U);
}

}  // namespace
}  // namespace nestor
