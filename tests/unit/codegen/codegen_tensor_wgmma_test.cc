// Tensor kernels of compute capability 9.0, run as they are emitted: barriers, tensor copies, products and stores in adversarial order. Their code
// gives what the operator means for ragged sizes, and every way to share the work, without races.
#include "support/simt/simt_image.h"
#include "support/tensor/product_nests.h"
#include "support/tensor/tensor_cluster_cases.h"
#include "support/tensor/tensor_mma_cases.h"

#include <gtest/gtest.h>

#include <set>

namespace nestor::testing {
namespace {

class TensorWgmma : public ::testing::TestWithParam<SimtCase> {};

TEST_P(TensorWgmma, kernels_compute_what_the_program_says) {
  const SimtCase& test = GetParam();
  const CompiledNvptx compiled = compile_nvptx(test.program, {});
  EXPECT_EQ(compiled.kernel.architecture, "sm_90a");
  EXPECT_EQ(run_emulated(compiled, test.program, test.sizes, test.options, {1, 2, 3}), "");
}

/// Those of other capabilities with rows that tensor copies can start at, and some of their own.
std::vector<SimtCase> wgmma_cases() {
  const std::set<std::string> chosen{"causal_three_slots",
                                     "resident",
                                     "odd_columns",
                                     "biased_narrow",
                                     "biased_few_keys",
                                     "two_row_tiles",
                                     "linear",
                                     "product_gated",
                                     "causal_maximum_stays_behind",
                                     "unrolled_overlap",
                                     "second_block_without_rows"};
  std::vector<SimtCase> result;
  for (const std::vector<SimtCase>& list : {tensor_mma_cases(), tensor_cluster_cases()}) {
    for (const SimtCase& test : list) {
      if (chosen.count(test.name) != 0) result.push_back(test);
    }
  }
  const CheckOptions half{.tolerance = 3e-3};
  const AttentionForm causal{.seen = Seen::causal, .depth = 16};
  result.push_back({"dynamic_scheduler",
                    tensor_program(attention_nest(causal),
                                   {.rows = 128, .columns = 32, .more = {"persistent(out.io, 1)", "dynamic_scheduler(out.io)"}}),
                    {{"H", 3}, {"Q", 150}, {"K", 150}},
                    half});
  result.push_back({"resident_pairs",
                    tensor_program(attention_nest(causal),
                                   {.rows = 256,
                                    .columns = 32,
                                    .more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "cluster(out.io, 2)"}}),
                    {{"H", 5}, {"Q", 100}, {"K", 100}},
                    half});
  // 5 rows of tiles in groups of 2, the last one of 1; 4 columns.
  const Sizes ragged{{"M", 270}, {"N", 104}, {"K", 40}};
  const std::vector<std::string> groups{"raster_group(out.io, 2)"};
  result.push_back(
      {"raster_groups", product_program({}, {.rows = 64, .columns = 32, .warpgroups = 1, .more = groups}), ragged, half});
  result.push_back(
      {"resident_raster_groups",
       product_program(
           {}, {.rows = 64, .columns = 32, .warpgroups = 1, .more = {"persistent(out.io, 1)", "raster_group(out.io, 2)"}}),
       ragged, half});
  result.push_back({"raster_groups_of_heads",
                    tensor_program(attention_nest(causal), {.rows = 64, .columns = 32, .more = groups}),
                    {{"H", 3}, {"Q", 150}, {"K", 150}},
                    half});
  // Four stages of both operands leave room for two of four blocks of the result's columns.
  const ProductSteps wide{.columns = 256, .depth = 64, .stages = 4};
  ProductSteps resident = wide;
  resident.more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)"};
  for (const auto& [name, steps] : {std::pair("result_in_parts", wide), std::pair("resident_result_in_parts", resident)})
    result.push_back({name, product_program({}, steps), {{"M", 130}, {"N", 520}, {"K", 72}}, half});
  // Warpgroups with work tiles of their own: fewer tiles of a sum than stages and more, in pairs of blocks, of three warpgroups, in parts.
  const std::vector<std::string> in_turn{"persistent(out.io, 1)", "ping_pong_tiles(out.io)"};
  std::vector<std::string> overlapped{"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "ping_pong_tiles(out.io)"},
      pairs = in_turn;
  pairs.emplace_back("cluster(out.io, 2)");
  const Sizes many{{"M", 270}, {"N", 200}, {"K", 136}}, few{{"M", 70}, {"N", 40}, {"K", 24}};
  result.push_back({"tiles_in_turn", product_program({}, {.rows = 64, .more = in_turn}), many, half});
  result.push_back({"tiles_in_turn_of_one", product_program({}, {.rows = 128, .more = in_turn}), few, half});
  result.push_back({"tiles_in_turn_overlap", product_program({}, {.rows = 128, .stages = 3, .more = overlapped}), many, half});
  result.push_back({"tiles_in_turn_of_pairs", product_program({}, {.rows = 128, .stages = 3, .more = pairs}), many, half});
  result.push_back({"gated_tiles_in_turn_of_three",
                    product_program({.gated = true}, {.rows = 64, .warpgroups = 3, .stages = 4, .more = in_turn}), many, half});
  result.push_back({"tiles_in_turn_result_in_parts",
                    product_program({}, {.rows = 64, .columns = 256, .depth = 64, .stages = 4, .more = overlapped}),
                    {{"M", 200}, {"N", 520}, {"K", 200}},
                    half});
  // Results in blocks of 32 columns, as 64 do not divide a tile's: alone, beside the next tile's products, with ragged ends.
  result.push_back({"tiles_of_96_columns", product_program({}, {.columns = 96}), {{"M", 140}, {"N", 200}, {"K", 40}}, half});
  result.push_back({"tiles_of_160_columns_in_turn",
                    product_program({}, {.rows = 64, .columns = 160, .more = overlapped}),
                    {{"M", 270}, {"N", 328}, {"K", 72}},
                    half});
  result.push_back({"tiles_of_224_columns_in_parts",
                    product_program({}, {.columns = 224, .depth = 64, .stages = 4, .more = {"persistent(out.io, 1)"}}),
                    {{"M", 130}, {"N", 456}, {"K", 72}},
                    half});
  // Three blocks of columns in two places: the first of a tile has that of the last one of the tile before.
  result.push_back({"tiles_of_192_columns_in_turn_in_parts",
                    product_program({}, {.rows = 64, .columns = 192, .depth = 64, .stages = 6, .more = in_turn}),
                    {{"M", 200}, {"N", 392}, {"K", 136}},
                    half});
  // A result of half a block of columns in the place of an operand that another warpgroup may still read.
  result.push_back({"attention_of_32_columns",
                    tensor_program(attention_nest({.depth = 32}), {.rows = 128, .columns = 64}),
                    {{"H", 2}, {"Q", 200}, {"K", 130}},
                    half});
  result.push_back({"attention_tiles_in_turn",
                    tensor_program(attention_nest({.depth = 16}), {.rows = 64, .columns = 32, .more = in_turn}),
                    {{"H", 3}, {"Q", 150}, {"K", 90}},
                    half});
  return result;
}

INSTANTIATE_TEST_SUITE_P(cases, TensorWgmma, ::testing::ValuesIn(wgmma_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
