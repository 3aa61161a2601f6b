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
  const auto attention = [&](const std::string& name, const AttentionForm& form, const TensorSteps& steps, Sizes sizes) {
    result.push_back({name, [=] { return tensor_program(attention_nest(form), steps); }, std::move(sizes), half});
  };
  const auto product = [&](const std::string& name, const ProductForm& form, const ProductSteps& steps, Sizes sizes) {
    result.push_back({name, [=] { return product_program(form, steps); }, std::move(sizes), half});
  };
  const AttentionForm causal{.seen = Seen::causal, .depth = 16};
  attention("dynamic_scheduler", causal,
            {.rows = 128, .columns = 32, .more = {"persistent(out.io, 1)", "dynamic_scheduler(out.io)"}},
            {{"H", 3}, {"Q", 150}, {"K", 150}});
  attention(
      "resident_pairs", causal,
      {.rows = 256, .columns = 32, .more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "cluster(out.io, 2)"}},
      {{"H", 5}, {"Q", 100}, {"K", 100}});
  // 5 rows of tiles in groups of 2, the last one of 1; 4 columns.
  const Sizes ragged{{"M", 270}, {"N", 104}, {"K", 40}};
  const std::vector<std::string> groups{"raster_group(out.io, 2)"};
  product("raster_groups", {}, {.rows = 64, .columns = 32, .warpgroups = 1, .more = groups}, ragged);
  product("resident_raster_groups", {},
          {.rows = 64, .columns = 32, .warpgroups = 1, .more = {"persistent(out.io, 1)", "raster_group(out.io, 2)"}}, ragged);
  attention("raster_groups_of_heads", causal, {.rows = 64, .columns = 32, .more = groups}, {{"H", 3}, {"Q", 150}, {"K", 150}});
  // Four stages of both operands leave room for two of four blocks of the result's columns.
  const ProductSteps wide{.columns = 256, .depth = 64, .stages = 4};
  ProductSteps resident = wide;
  resident.more = {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)"};
  for (const auto& [name, steps] : {std::pair("result_in_parts", wide), std::pair("resident_result_in_parts", resident)})
    product(name, {}, steps, {{"M", 130}, {"N", 520}, {"K", 72}});
  // Warpgroups with work tiles of their own: fewer tiles of a sum than stages and more, in pairs of blocks, of three warpgroups, in parts.
  const std::vector<std::string> in_turn{"persistent(out.io, 1)", "ping_pong_tiles(out.io)"};
  std::vector<std::string> overlapped{"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "ping_pong_tiles(out.io)"},
      pairs = in_turn;
  pairs.emplace_back("cluster(out.io, 2)");
  const Sizes many{{"M", 270}, {"N", 200}, {"K", 136}}, few{{"M", 70}, {"N", 40}, {"K", 24}};
  product("tiles_in_turn", {}, {.rows = 64, .more = in_turn}, many);
  product("tiles_in_turn_of_one", {}, {.rows = 128, .more = in_turn}, few);
  product("tiles_in_turn_overlap", {}, {.rows = 128, .stages = 3, .more = overlapped}, many);
  product("tiles_in_turn_of_pairs", {}, {.rows = 128, .stages = 3, .more = pairs}, many);
  product("gated_tiles_in_turn_of_three", {.gated = true}, {.rows = 64, .warpgroups = 3, .stages = 4, .more = in_turn}, many);
  product("tiles_in_turn_result_in_parts", {}, {.rows = 64, .columns = 256, .depth = 64, .stages = 4, .more = overlapped},
          {{"M", 200}, {"N", 520}, {"K", 200}});
  // Results in blocks of 32 columns, as 64 do not divide a tile's: alone, beside the next tile's products, with ragged ends.
  product("tiles_of_96_columns", {}, {.columns = 96}, {{"M", 140}, {"N", 200}, {"K", 40}});
  product("tiles_of_160_columns_in_turn", {}, {.rows = 64, .columns = 160, .more = overlapped},
          {{"M", 270}, {"N", 328}, {"K", 72}});
  product("tiles_of_224_columns_in_parts", {}, {.columns = 224, .depth = 64, .stages = 4, .more = {"persistent(out.io, 1)"}},
          {{"M", 130}, {"N", 456}, {"K", 72}});
  // Three blocks of columns in two places: the first of a tile has that of the last one of the tile before.
  product("tiles_of_192_columns_in_turn_in_parts", {}, {.rows = 64, .columns = 192, .depth = 64, .stages = 6, .more = in_turn},
          {{"M", 200}, {"N", 392}, {"K", 136}});
  // A result of half a block of columns in the place of an operand that another warpgroup may still read.
  attention("attention_of_32_columns", {.depth = 32}, {.rows = 128, .columns = 64}, {{"H", 2}, {"Q", 200}, {"K", 130}});
  attention("attention_tiles_in_turn", {.depth = 16}, {.rows = 64, .columns = 32, .more = in_turn},
            {{"H", 3}, {"Q", 150}, {"K", 90}});
  return result;
}

INSTANTIATE_TEST_SUITE_P(cases, TensorWgmma, ::testing::ValuesIn(wgmma_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
