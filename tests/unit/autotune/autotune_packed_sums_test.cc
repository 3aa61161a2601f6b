// Streamed sums of products whose rows run along two loops: images of a batch are places within the rows of a convolution. Guesses have them
// where they fill tiles, and compute what the nest defines.
#include "autotune/space/gpu/tensor_fit.h"
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/proof/program_proof.h"
#include "support/error.h"
#include "support/nests/half_values.h"
#include "support/nests/operand_nests.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace nestor {
namespace {

using namespace samples;

/// A convolution of groups, each of `share` channels and as many filters, with `taps` x `taps` taps and steps of `stride` places.
Nest grouped_convolution(int share, int taps, int stride = 1) {
  const std::string c = std::to_string(share), t = std::to_string(taps), step = std::to_string(stride);
  const std::string place = "0 <= n < B and 0 <= y < Y and 0 <= z < Y and 0 <= g < G and 0 <= a < " + c;
  const std::string side = step + "*Y + " + std::to_string(taps - 1);
  return NestBuilder("grouped_convolution", {{"B", 2}, {"Y", 20}, {"G", 2}})
      .tensor("x", TensorRole::input, {"B", side, side, "G", c}, kHalf)
      .tensor("w", TensorRole::input, {"G", c, t, t, c}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "Y", "Y", "G", c})
      .tensor("out", TensorRole::output, {"B", "Y", "Y", "G", c}, kHalf)
      .statement("sum_init[n, y, z, g, a] : " + place, "sum[n, y, z, g, a]", {}, number(0))
      .statement("sum[n, y, z, g, a, s, t, b] : " + place + " and 0 <= s < " + t + " and 0 <= t < " + t + " and 0 <= b < " + c,
                 "sum[n, y, z, g, a]", {"x[n, " + step + "*y + s, " + step + "*z + t, g, b]", "w[g, a, s, t, b]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, y, z, g, a] : " + place, "out[n, y, z, g, a]", {"sum[n, y, z, g, a]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

/// Rows of a batch, times one matrix.
Nest batch_of_rows() {
  const std::string cell = "0 <= b < B and 0 <= i < M and 0 <= j < N";
  return NestBuilder("batch_of_rows", {{"B", 2}, {"M", 200}, {"N", 200}, {"K", 200}})
      .tensor("x", TensorRole::input, {"B", "M", "K"}, kHalf)
      .tensor("w", TensorRole::input, {"N", "K"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "M", "N"})
      .tensor("out", TensorRole::output, {"B", "M", "N"}, kHalf)
      .statement("sum_init[b, i, j] : " + cell, "sum[b, i, j]", {}, number(0))
      .statement("sum[b, i, j, k] : " + cell + " and 0 <= k < K", "sum[b, i, j]", {"x[b, i, k]", "w[j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("out[b, i, j] : " + cell, "out[b, i, j]", {"sum[b, i, j]"}, ScalarExpr::cast(kHalf, read(0) * number(0.1)))
      .build();
}

struct PackedCase {
  const char* name;
  Nest nest;
  Sizes sizes;   ///< that guesses are made for
  Sizes ragged;  ///< that kernels run at
};

class PackedSums : public ::testing::TestWithParam<PackedCase> {};
INSTANTIATE_TEST_SUITE_P(
    Nests, PackedSums,
    ::testing::Values(
        PackedCase{"groups_of_32", grouped_convolution(32, 3), {{"B", 32}, {"Y", 28}, {"G", 16}}, {{"B", 5}, {"Y", 3}, {"G", 2}}},
        PackedCase{
            "more_than_a_pack", grouped_convolution(32, 2), {{"B", 32}, {"Y", 28}, {"G", 16}}, {{"B", 9}, {"Y", 9}, {"G", 1}}},
        PackedCase{"one_tap", grouped_convolution(64, 1), {{"B", 32}, {"Y", 28}, {"G", 8}}, {{"B", 3}, {"Y", 10}, {"G", 2}}},
        PackedCase{"one_tap_in_strides",
                   grouped_convolution(64, 1, 2),
                   {{"B", 32}, {"Y", 28}, {"G", 8}},
                   {{"B", 3}, {"Y", 4}, {"G", 2}}},
        PackedCase{
            "places_of_few_rows", grouped_convolution(64, 1), {{"B", 32}, {"Y", 14}, {"G", 8}}, {{"B", 9}, {"Y", 6}, {"G", 1}}},
        PackedCase{"batch_of_rows",
                   batch_of_rows(),
                   {{"B", 64}, {"M", 200}, {"N", 4096}, {"K", 4096}},
                   {{"B", 5}, {"M", 37}, {"N", 88}, {"K", 72}}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(PackedSums, GuessesOfEachKindAreRight) {
  const PackedCase& test = GetParam();
  const Sizes sizes = complete_sizes(test.nest, test.sizes);
  BaseSchedules schedules(nest_for_tuning(test.nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  const TileProgram meaning = build_tile_program(schedules.base({}));
  for (const Point& point : space->defaults()) {
    const NamedValues values = named_values(*space, point);
    const std::int64_t pack = value_or(values, "pack_gqa", 1);
    if (value_or(values, "warpgroups", 0) == 0 || pack < 2) continue;
    if (!seen.emplace(value_or(values, "cluster", 1), value_or(values, "ping_pong_tiles", 0)).second) continue;
    const Candidate candidate = space->candidate(point);
    ASSERT_EQ(candidate.infeasible, "");
    const Schedule schedule = schedules.replay(candidate.steps);
    const TileProgram program = build_tile_program(schedule);
    EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
    const CompiledNvptx compiled = compile_nvptx(program, {});  // its plans are proved
    const auto& kernels = compiled.plans->kernels;
    EXPECT_TRUE(std::any_of(kernels.begin(), kernels.end(),
                            [&](const PlannedKernel& kernel) { return kernel.tensor && kernel.tensor->pack == pack; }));
    EXPECT_EQ(testing::run_emulated(compiled, meaning, test.ragged, {.tolerance = 4e-3}, {1}), "")
        << ::testing::PrintToString(values);
  }
  EXPECT_GE(seen.size(), 2U);
}

/// Five heads that share keys, innermost, at 1,500 places: tiles are places of one head, as the heads of a pack leave three in eight rows empty.
/// Sixteen of them fill packs.
TEST(PackedRows, PlacesAreRowsWhereHeadsLeaveTilesEmpty) {
  const Nest nest = testing::attention_nest({.grouped = true});
  const auto packed = [&](std::int64_t heads, std::int64_t places) {
    testing::SpaceGuesses guesses(nest, {{"H", 16}, {"G", places}, {"Q", heads}, {"K", 1500}});
    EXPECT_EQ(value_or(guesses.values(0), "warpgroups", 0) > 0, true);
    const std::int64_t pack = value_or(guesses.values(0), "pack_gqa", 1);
    const TileProgram program = guesses.program(0);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    EXPECT_EQ(
        testing::run_emulated(compiled, guesses.meaning(), {{"H", 2}, {"G", 70}, {"Q", 3}, {"K", 90}}, {.tolerance = 4e-3}, {1}),
        "");
    return pack > 1;
  };
  EXPECT_FALSE(packed(5, 1500));
  EXPECT_TRUE(packed(16, 40));
}

/// out[i, j] = the sum over k of a[i, k + shift] b[j, k].
Nest shifted_product(int shift) {
  const std::string cell = "0 <= i < M and 0 <= j < N";
  const auto wide = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::f16)); };
  return NestBuilder("shifted_product", {{"M", 512}, {"N", 512}})
      .tensor("a", TensorRole::input, {"M", "80"}, ElementType::f16)
      .tensor("b", TensorRole::input, {"N", "64"}, ElementType::f16)
      .tensor("sum", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"}, ElementType::f16)
      .statement("init[i, j] : " + cell, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + cell + " and 0 <= k < 64", "sum[i, j]",
                 {"a[i, k + " + std::to_string(shift) + "]", "b[j, k]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[i, j] : " + cell, "out[i, j]", {"sum[i, j]"}, ScalarExpr::cast(ElementType::f16, read(0)))
      .build();
}

/// A copy by a tensor map that starts elsewhere is an illegal instruction.
TEST(TilesOfTensorMaps, StartAtMultiplesOf16Bytes) {
  for (const int shift : {0, 8, 4, 1}) {
    testing::SpaceGuesses guesses(shifted_product(shift), {});
    int tried = 0;
    for (std::size_t k = 0; k < guesses.points.size() && tried < 2; ++k) {
      if (value_or(guesses.values(k), "warpgroups", 0) == 0) continue;
      ++tried;
      const TileProgram program = guesses.program(k);
      if (shift % 8 == 0) {
        EXPECT_EQ(testing::run_emulated(compile_nvptx(program, {}), guesses.meaning(), {{"M", 70}, {"N", 40}},
                                        {.tolerance = 4e-3}, {1}),
                  "")
            << shift;
      } else {
        EXPECT_THAT([&] { plan_kernels(program, {}); },
                    ::testing::ThrowsMessage<UserError>(::testing::HasSubstr("start at no multiple of 16 bytes")))
            << shift;
      }
    }
    EXPECT_GT(tried, 0) << shift;
  }
}

TEST(PackedSums, WrongRowsHaveNoProof) {
  const Nest nest = grouped_convolution(32, 3);
  const Sizes sizes{{"B", 32}, {"Y", 28}, {"G", 16}};
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  const Candidate first = space->candidate(space->defaults().front());
  const auto plans = plan_kernels(build_tile_program(schedules.replay(first.steps)), {});
  const nvptx::TensorPlan& plan = plans->kernels.front().tensor.value();
  ASSERT_GT(plan.pack, 1);
  EXPECT_THAT(check_tensor_plan(plan).violations, ::testing::IsEmpty());
  std::size_t rows = 0;
  while (plan.buffer(plan.circular_buffers.at(rows).buffer).name != "x") ++rows;
  const auto refuted = [&](auto change) {
    nvptx::TensorPlan mutant = plan;
    change(mutant);
    return !check_tensor_plan(mutant).violations.empty();
  };
  for (const int index : {-1, 1, 2, 3})
    EXPECT_TRUE(refuted([&](auto& mutant) { mutant.circular_buffers[rows].pack_index = index; })) << index;
  for (const int index : {0, 1, 3})
    EXPECT_TRUE(refuted([&](auto& mutant) { mutant.circular_buffers[rows].row_index = index; })) << index;
  for (const std::size_t index : {0, 1, 2, 3, 4}) {
    EXPECT_TRUE(refuted([&](auto& mutant) {
      IntExpr& origin = mutant.circular_buffers[rows].origin[index];
      origin = origin + IntExpr(1);
    })) << index;
  }
  EXPECT_TRUE(refuted([&](auto& mutant) { mutant.pack /= 2; }));
  for (std::size_t k = 0; k < plan.ops.size(); ++k) {
    if (!plan.ops[k].through_shared) continue;
    EXPECT_TRUE(refuted([&](auto& mutant) { mutant.ops[k].pack_index = 1; }));
  }
}

/// Dims of one value, which 1 x 1 taps are, have no parts.
TEST(PackedSums, ATapOfOneValueIsNoPart) {
  const Nest nest = fix_sizes(grouped_convolution(64, 1, 2), {{"B", 32}, {"Y", 28}, {"G", 8}});
  const Sizes sizes{{"B", 32}, {"Y", 28}, {"G", 8}};
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, 132));
  EXPECT_EQ(space->candidate(space->defaults().front()).infeasible, "");
}

TEST(PackedSums, PacksAreForTilesThatRowsAloneLeaveEmpty) {
  TensorAxes axes;
  axes.row = 0, axes.column = 1, axes.reduction_axis = 2, axes.pack = 3;
  axes.column_extent = 256, axes.inner = 64;
  const auto pack = [&](std::int64_t rows, std::int64_t places, int sm = 90) {
    axes.row_extent = rows, axes.pack_extent = places;
    return likely_pack(axes, {.grid = {.warpgroups = 2}}, {.sm = sm});
  };
  EXPECT_EQ(pack(28, 32), 4) << "32 x 4 of 28 x 32";
  EXPECT_EQ(pack(128, 32), 1);
  EXPECT_EQ(pack(120, 32), 1) << "a few places are empty";
  EXPECT_EQ(pack(64, 2), 2);
  EXPECT_EQ(pack(14, 3), 4) << "one place of four is empty";
  EXPECT_EQ(pack(28, 32, 80), 1) << "no packs";
}

}  // namespace
}  // namespace nestor
