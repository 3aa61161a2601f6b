// The model of a block on tensor cores: registers of fragments, places in shared memory, and what a target refuses.
#include "codegen/gpu/target/tensor_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::nvptx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Attention of heads of 64: queries stay, tiles of keys and values come by two stages.
TensorBlock attention_block(std::int64_t columns = 128) {
  TensorBlock block;
  block.warpgroups = 2;
  block.products = {{columns, 0}, {64, columns}};
  block.tiles = {{.rows = 128, .columns = 64, .lends = true},
                 {.rows = columns, .columns = 64, .stages = 2},
                 {.rows = columns, .columns = 64, .stages = 2}};
  block.results = {{64}};
  return block;
}

NvptxTarget target_of(int sm, std::int64_t shared_limit = 227 << 10) {
  NvptxTarget target;
  target.sm = sm;
  target.shared_limit = shared_limit;
  return target;
}

TEST(TensorBlock, registers_are_those_of_sums_operands_and_what_is_held) {
  TensorBlock block = attention_block();
  EXPECT_EQ(estimate(block, target_of(90)).registers, 128 / 2 + 64 / 2 + 128 / 4);
  block.tiles[0].held = true;
  EXPECT_EQ(estimate(block, target_of(90)).registers, 128 + 64 / 4);
  block.row_tiles = 2;
  EXPECT_EQ(estimate(block, target_of(90)).registers, 2 * (128 + 64 / 4));
  EXPECT_THAT(estimate(block, target_of(90)).spills,
              HasSubstr("fragments need 288 registers of a thread, 2 warpgroups in 1 blocks leave"));
  EXPECT_EQ(estimate(block, target_of(90)).refusal, "") << "a plan spills and runs";
}

TEST(TensorBlock, columns_and_terms_are_those_that_instructions_take) {
  TensorBlock block;
  block.products = {{36, 0}, {20, 36}};
  EXPECT_EQ(estimate(block, target_of(90)).registers, 40 / 2 + 24 / 2 + 48 / 4);
}

TEST(TensorBlock, chain_by_chain_those_under_way_have_sums_and_one_has_an_operand) {
  TensorBlock block;
  block.products = {{64, 0}, {64, 0}, {128, 64}, {128, 64}};
  const TensorNeeds together = estimate(block, target_of(90));
  EXPECT_EQ(together.registers, 2 * 32 + 2 * (64 + 16));
  block.chains = 1;
  EXPECT_EQ(estimate(block, target_of(90)).registers, 32 + 2 * 64 + 16);
  EXPECT_LT(estimate(block, target_of(90)).registers_left, together.registers_left);
}

TEST(TensorBlock, a_result_takes_the_place_of_an_operand_that_stays) {
  const SharedPlaces places = estimate(attention_block(), target_of(90)).places;
  EXPECT_THAT(places.tiles, ElementsAre(0, 16 << 10, 48 << 10));
  EXPECT_THAT(places.results, ElementsAre(0));
  EXPECT_EQ(places.barriers, 80 << 10);
  EXPECT_EQ(places.bytes, (80 << 10) + 512 + 1024);
}

TEST(TensorBlock, a_wider_result_has_a_place_of_its_own) {
  TensorBlock block = attention_block();
  block.results = {{72}};
  EXPECT_THAT(estimate(block, target_of(90)).places.results, ElementsAre(80 << 10));
}

TEST(TensorBlock, a_result_of_half_a_block_more_takes_its_own_columns_alone) {
  TensorBlock block{.warpgroups = 2, .tiles = {{.rows = 128, .columns = 64}}, .results = {{.columns = 96, .block_columns = 32}}};
  const SharedPlaces places = estimate(block, target_of(90)).places;
  EXPECT_THAT(places.result_blocks, ElementsAre(3));
  EXPECT_EQ(places.barriers - places.results.at(0), 128 * 96 * 2);
  EXPECT_THAT(estimate(block, target_of(80)).places.result_blocks, ElementsAre(2));  // no tensor copies
}

TEST(TensorBlock, so_has_one_of_a_resident_block_where_there_is_room) {
  TensorBlock block = attention_block();
  block.persistent = true;
  EXPECT_THAT(estimate(block, target_of(90)).places.results, ElementsAre(80 << 10));
  EXPECT_THAT(estimate(block, target_of(90, 90 << 10)).places.results, ElementsAre(0));
  block.tiles[0].held = true;  // the next work tile's operand is there by then
  EXPECT_THAT(estimate(block, target_of(90, 90 << 10)).places.results, ElementsAre(80 << 10));
  EXPECT_THAT(estimate(block, target_of(90, 90 << 10)).refusal,
              HasSubstr("needs 99840 bytes of shared memory for its tiles, and a block has 92160"));
}

TEST(TensorBlock, a_result_that_finds_no_room_leaves_in_parts) {
  TensorBlock block{.warpgroups = 2,
                    .persistent = true,
                    .tiles = {{.rows = 128, .columns = 64}, {.rows = 64, .columns = 256}},
                    .results = {{256}}};
  for (const auto& [stages, blocks] : {std::pair(2, 4), std::pair(3, 4), std::pair(4, 2)}) {
    for (BlockTile& tile : block.tiles) tile.stages = stages;
    const TensorNeeds needs = estimate(block, target_of(90));
    EXPECT_EQ(needs.refusal, "");
    EXPECT_THAT(needs.places.result_blocks, ElementsAre(blocks)) << stages;
    EXPECT_EQ(needs.places.barriers - needs.places.results.at(0), blocks * (16 << 10));
  }
  for (BlockTile& tile : block.tiles) tile.stages = 5;
  EXPECT_THAT(estimate(block, target_of(90)).refusal, HasSubstr("fewer stages"));
  EXPECT_THAT(estimate(block, target_of(90)).places.result_blocks, ElementsAre(1));
}

TEST(TensorBlock, one_operand_lends_its_place_once) {
  TensorBlock block = attention_block();
  block.results = {{64}, {64}};
  EXPECT_THAT(estimate(block, target_of(90)).places.results, ElementsAre(0, 80 << 10));
}

TEST(TensorBlock, many_slots_have_room_for_all_their_barriers) {
  TensorBlock block = attention_block(64);
  block.scheduler = block.persistent = true;
  block.tiles[1].stages = block.tiles[2].stages = 20;
  const SharedPlaces places = estimate(block, target_of(90, 1 << 20)).places;
  EXPECT_EQ(places.bytes - places.barriers, 1024 + kTileAlignment);
  const int stages = 1 + 20 + 20 + kWorkTileStages;
  EXPECT_GE(places.scheduler, places.barriers + stages * 2 * kBarrierBytes);
  EXPECT_EQ(places.scheduler + kWorkTileStages * kWorkTileBytes + kTileAlignment, places.bytes);
}

TEST(TensorBlock, where_all_threads_copy_there_are_no_barriers) {
  EXPECT_EQ(estimate(attention_block(), target_of(80)).places.bytes, (80 << 10) + 1024);
}

TEST(TensorBlock, residents_share_a_multiprocessor) {
  TensorBlock block = attention_block();
  block.blocks_per_unit = 3;
  EXPECT_THAT(estimate(block, target_of(90)).refusal,
              HasSubstr("3 blocks of 84480 bytes of shared memory do not fit the 233472 bytes"));
  block.blocks_per_unit = 2;
  EXPECT_EQ(estimate(block, target_of(90)).refusal, "");
}

TEST(TensorBlock, copies_and_clusters_have_limits) {
  TensorBlock block = attention_block();
  block.tiles[0].rows = 384;
  EXPECT_THAT(estimate(block, target_of(90)).refusal, HasSubstr("a tile has 384 rows, and a tensor copy moves 256 at most"));
  EXPECT_EQ(estimate(block, target_of(80)).refusal, "") << "threads copy any number";
  block = attention_block(48);
  block.tiles[1].blocks = 4;
  EXPECT_THAT(estimate(block, target_of(90)).refusal,
              HasSubstr("4 blocks of a cluster cannot share out a tile with 48 rows of 64 elements"));
}

}  // namespace
}  // namespace nestor::nvptx
