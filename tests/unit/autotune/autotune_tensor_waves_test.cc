// Tiles of products that fill few waves of blocks evenly: by the model, and among the first candidates.
#include "autotune/space/gpu/tensor_fit.h"
#include "autotune/space/gpu/tensor_guesses.h"
#include "autotune/space/gpu/tensor_waves.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

TensorAxes product(std::int64_t rows, std::int64_t columns, std::int64_t terms) {
  TensorAxes axes;
  axes.row = 0, axes.column = 1, axes.reduction_axis = 2;
  axes.row_extent = rows, axes.column_extent = columns, axes.inner = terms;
  axes.row_operands = axes.streamed_operands = {{1, true}};
  axes.results = {0};
  axes.first_products = 1;
  return axes;
}

TensorChoice tile(int warpgroups, std::int64_t columns, int cluster = 1) {
  return {.grid = {.warpgroups = warpgroups, .stages = 4, .intra_warpgroup_overlap = 1, .cluster = cluster}, .columns = columns};
}

TEST(TensorWaves, PartsGiveEachMultiprocessorABlock) {
  const GpuLimits limits;
  EXPECT_EQ(useful_parts(132, 1, 1000, limits), 1);
  EXPECT_EQ(useful_parts(67, 1, 1000, limits), 1) << "more than half of them are busy";
  EXPECT_EQ(useful_parts(66, 1, 1000, limits), 2);
  EXPECT_EQ(useful_parts(16, 1, 1000, limits), 8);
  EXPECT_EQ(useful_parts(16, 2, 1000, limits), 16);
  EXPECT_EQ(useful_parts(16, 1, 24, limits), 3) << "eight tiles at least";
  EXPECT_EQ(useful_parts(16, 1, 3, limits), 1);
}

/// A last wave of few blocks takes as long as a full one; what is copied for narrow tiles takes longer than their products.
TEST(TensorWaves, TheModelCountsWavesCopiesAndParts) {
  const GpuLimits limits;
  const TensorAxes axes = product(512, 3072, 1024);
  EXPECT_LT(modelled_cycles(axes, tile(1, 192), 1, limits), modelled_cycles(axes, tile(1, 128), 1, limits))
      << "192 blocks: two waves";
  EXPECT_LT(modelled_cycles(axes, tile(1, 256, 2), 1, limits), modelled_cycles(axes, tile(1, 256), 1, limits))
      << "columns shared";
  TensorChoice deep = tile(1, 64);
  deep.depth = 128;
  const TensorAxes few = product(512, 1024, 4096), long_sums = product(128, 1024, 65536);
  EXPECT_LT(modelled_cycles(few, deep, 1, limits), modelled_cycles(few, tile(1, 64), 1, limits)) << "half as many rounds";
  EXPECT_LT(modelled_cycles(few, deep, 1, limits), modelled_cycles(few, tile(2, 128), 4, limits))
      << "a second kernel takes longer";
  EXPECT_LT(modelled_cycles(long_sums, tile(2, 128), 16, limits), modelled_cycles(long_sums, tile(2, 128), 1, limits));
}

TEST(TensorWaves, TilesOfFewWavesFitAndBeatTheUsualOnes) {
  const GpuLimits limits;
  for (const auto& [rows, columns, terms] :
       {std::tuple(512, 3072, 1024), std::tuple(512, 1024, 4096), std::tuple(300, 5000, 2048)}) {
    const TensorAxes axes = product(rows, columns, terms);
    const auto cycles = [&](const TensorChoice& choice) { return modelled_cycles(axes, choice, 1, limits); };
    const std::vector<TensorChoice> choices = choices_in_few_waves(axes, limits);
    ASSERT_FALSE(choices.empty());
    for (const TensorChoice& choice : choices) {
      EXPECT_EQ(tensor_infeasible(axes, choice, limits), "");
      for (const std::int64_t usual : {256, 192, 128}) EXPECT_LE(cycles(choice), cycles(tile(2, usual)));
    }
    const std::vector<NamedValues> guesses = likely_tensor_choices(axes, limits);
    EXPECT_NE(std::find(guesses.begin(), guesses.end(), values_of(choices.front())), guesses.end())
        << "with the order of blocks as it is";
  }
}

TEST(TensorWaves, ManyWavesAndNarrowResultsHaveTheUsualTiles) {
  const GpuLimits limits;
  EXPECT_TRUE(choices_in_few_waves(product(8192, 8192, 4096), limits).empty());
  for (const TensorChoice& choice : choices_in_few_waves(product(4096, 40, 4096), limits)) EXPECT_LE(choice.columns, 48);
  for (const TensorChoice& choice : choices_in_few_waves(product(100, 4096, 4096), limits))
    EXPECT_EQ(choice.grid.cluster, 1) << "a second block of a pair would have no whole tile of rows";
}

/// Few rows are columns of transposed products: tiles of all of them, and of whole warpgroups of the others, which are read once.
TEST(TensorWaves, FewRowsHaveTransposedProductsFirst) {
  const GpuLimits limits;
  const std::vector<NamedValues> points = likely_tensor_choices(product(13, 4096, 4096), limits);
  ASSERT_FALSE(points.empty());
  const TensorChoice first = tensor_choice(points.front());
  EXPECT_EQ(first.few_rows, 16);
  EXPECT_EQ(first.rows(), 16);
  EXPECT_EQ(first.grid.swap_ab, 1);
  EXPECT_TRUE(first.streaming_inputs);
  EXPECT_EQ(tensor_infeasible(product(13, 4096, 4096), first, limits), "");
  TensorChoice odd = first;
  odd.columns = 80;
  EXPECT_EQ(tensor_infeasible(product(13, 4096, 4096), odd, limits), "80 columns of transposed products are no multiple of 64");
  EXPECT_EQ(tensor_infeasible(product(100, 4096, 4096), first, limits), "these products cannot be transposed");
  EXPECT_EQ(tensor_infeasible(product(13, 40, 4096), first, limits), "these products cannot be transposed");
  for (const NamedValues& values : likely_tensor_choices(product(32, 4096, 128), limits))
    EXPECT_EQ(tensor_choice(values).few_rows, 0) << "as many results as terms";
  for (const NamedValues& values : likely_tensor_choices(product(100, 4096, 4096), limits))
    EXPECT_EQ(tensor_choice(values).few_rows, 0);
}

/// What streams is marked as read once only where one block reads it for all rows.
TEST(TensorWaves, StreamedOperandsAreReadOnceWhereABlockHasAllRows) {
  const auto streamed = [](std::int64_t rows) {
    TensorAxes axes = product(rows, 4096, 4096);
    axes.streamed_inputs = {"b"};
    TensorChoice choice = tile(1, 64);
    choice.streaming_inputs = true;
    GroupSteps shape;
    shape.outer = {{0, "i_o"}, {1, "j_o"}};
    shape.steps = {make_step("parallel", {"i_o"})};
    const std::vector<Step> steps = tensor_steps(shape, axes, choice);
    return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.name == "streaming"; });
  };
  EXPECT_TRUE(streamed(64));
  EXPECT_FALSE(streamed(65));
}

}  // namespace
}  // namespace nestor
