// Code of tensor kernels: what ptxas makes of it, and what its recipe tells a launcher.
#include "codegen/gpu/ptx/ptxas.h"
#include "support/tensor/tensor_cluster_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Case = NamedCase<AttentionForm, TensorSteps>;

class TensorCode : public ::testing::TestWithParam<Case> {};

// The warp that starts copies has few registers: in resident blocks it may spill some, once a work tile; the others never.
void expect_assembles(const TileProgram& program) {
  const CompiledNvptx compiled = compile_nvptx(program, {});
  EXPECT_EQ(compiled.kernel.architecture, "sm_90a");
  EXPECT_THAT(compiled.kernel.code, Not(HasSubstr(".local")));
  const PtxasReport report = run_ptxas(compiled.kernel.code, compiled.kernel.architecture);
  if (!report.available) GTEST_SKIP() << "no ptxas program here: set NESTOR_PTXAS";
  EXPECT_TRUE(report.accepted) << report.log;
  EXPECT_LE(report.spill_bytes, PlannedTensor(program).plan.persistent() ? 128 : 0) << report.log;
  EXPECT_THAT(report.log, Not(HasSubstr("wgmma"))) << "products run one after the other";
}

TEST_P(TensorCode, assembles_without_spills_and_with_products_that_overlap) {
  expect_assembles(tensor_program(attention_nest(GetParam().form), GetParam().steps));
}

/// Of blocks that share tiles.
class ClusterCode : public ::testing::TestWithParam<SimtCase> {};

TEST_P(ClusterCode, assembles_without_spills_and_with_products_that_overlap) { expect_assembles(GetParam().program); }

INSTANTIATE_TEST_SUITE_P(Tensor, ClusterCode, ::testing::ValuesIn(tensor_cluster_cases()),
                         [](const auto& info) { return info.param.name; });

/// Of compute capability 8.0.
class MmaCode : public ::testing::TestWithParam<Case> {};

TEST_P(MmaCode, assembles_without_spills) {
  const CompiledNvptx compiled = compile_nvptx(tensor_program(attention_nest(GetParam().form), GetParam().steps), older());
  EXPECT_EQ(compiled.kernel.architecture, "sm_80");
  for (const char* absent : {".local", "wgmma", "mbarrier", "cp.async.bulk"})
    EXPECT_THAT(compiled.kernel.code, Not(HasSubstr(absent)));
  for (const char* architecture : {"sm_80", "sm_90"}) {
    const PtxasReport report = run_ptxas(compiled.kernel.code, architecture);
    if (!report.available) GTEST_SKIP() << "no ptxas program here: set NESTOR_PTXAS";
    EXPECT_TRUE(report.accepted) << report.log;
    EXPECT_EQ(report.spill_bytes, 0) << report.log;
    EXPECT_EQ(report.stack_bytes, 0) << report.log;
  }
}

std::vector<Case> mma_cases() {
  constexpr ElementType bf16 = ElementType::bf16;
  return {
      {"full_128", {.depth = 128}, {.columns = 64}},
      {"full_128_one_slot", {.depth = 128}, {.columns = 64, .stages = 1}},
      {"causal_128_bf16_overlap", {Seen::causal, bf16, bf16, 128}, {.columns = 32, .more = {"intra_warpgroup_overlap(out.io)"}}},
      {"full_64_two_row_tiles", {}, {.columns = 64, .warpgroups = 1, .more = {"a_from_registers(out.io)"}}},
      {"causal_64_three_groups", {Seen::causal}, {.rows = 192, .columns = 64, .warpgroups = 3}},
      {"window_64_resident",
       {Seen::window},
       {.columns = 64, .stages = 3, .more = {"a_from_registers(out.io)", "persistent(out.io, 1)"}}},
      {"results_of_32_bits", {.result = ElementType::f32}, {.rows = 64, .warpgroups = 1}}};
}

INSTANTIATE_TEST_SUITE_P(Tensor, MmaCode, ::testing::ValuesIn(mma_cases()), [](const auto& info) { return info.param.name; });

std::vector<Case> code_cases() {
  constexpr ElementType bf16 = ElementType::bf16;
  const std::vector<std::string> overlap{"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)"};
  std::vector<std::string> all = overlap;
  all.insert(all.end(), {"a_from_registers(out.io)", "persistent(out.io, 1)"});
  return {
      {"full_128", {.depth = 128}, {.columns = 128, .more = overlap}},
      {"full_64_three_groups", {}, {.rows = 192, .columns = 128, .warpgroups = 3, .more = overlap}},
      {"full_256_maximum_stays_behind", {.depth = 256}, {.rules = lazy_rules(8), .columns = 80, .more = overlap}},
      {"causal_64_unrolled", {Seen::causal}, {.columns = 64, .more = {"intra_warpgroup_overlap(out.io)", "unroll(total.jo, 2)"}}},
      {"causal_64_bf16_persistent", {Seen::causal, bf16, bf16}, {.columns = 128, .more = all}},
      {"window_64_plain", {Seen::window}, {.columns = 96}},
      {"ragged_columns",
       {Seen::causal},
       {.rows = 64, .columns = 40, .warpgroups = 1, .more = {"intra_warpgroup_overlap(out.io)"}}},
      {"depth_72", {.depth = 72}, {.rows = 64, .columns = 64, .warpgroups = 1}},
      {"results_of_32_bits", {.result = ElementType::f32}, {.rows = 64, .columns = 64, .warpgroups = 1}}};
}

INSTANTIATE_TEST_SUITE_P(Tensor, TensorCode, ::testing::ValuesIn(code_cases()), [](const auto& info) { return info.param.name; });

TEST(TensorRecipe, tells_boxes_of_tensor_maps_and_threads) {
  const TileProgram program = tensor_program(attention_nest({.depth = 128}), {.columns = 80});
  const LaunchRecipe recipe = compile_nvptx(program, {}).kernel.recipe;
  ASSERT_EQ(recipe.launches.size(), 1u);
  const LaunchNode& node = recipe.launches[0];
  EXPECT_EQ(node.block[0], 3 * 128);
  EXPECT_EQ(node.shared_bytes, PlannedTensor(program).plan.shared_bytes);
  std::map<std::string, std::vector<std::int64_t>> boxes;
  for (const KernelParam& param : node.params) {
    if (param.kind == KernelParam::Kind::tensor_map) boxes[param.name].assign(param.box.begin(), param.box.end());
  }
  // Blocks of 64 elements; operands by whole tiles, the result by a group's rows.
  const std::map<std::string, std::vector<std::int64_t>> expected{
      {"q", {1, 128, 64}}, {"k", {1, 80, 64}}, {"v", {1, 80, 64}}, {"out", {1, 64, 64}}};
  EXPECT_EQ(boxes, expected);
}

TEST(TensorRecipe, rows_of_two_loops_are_copied_with_the_pack_within_the_other) {
  const TileProgram program = tensor_program(attention_nest({.grouped = true}), {.columns = 80, .pack = 4});
  const LaunchRecipe recipe = compile_nvptx(program, {}).kernel.recipe;
  for (const KernelParam& param : recipe.launches.at(0).params) {
    if (param.kind != KernelParam::Kind::tensor_map) continue;
    const bool rows = param.name == "q" || param.name == "out";
    EXPECT_EQ(param.order, rows ? std::vector<int>({0, 2, 1, 3}) : std::vector<int>()) << param.name;
    if (rows) {
      EXPECT_EQ(param.box, std::vector<int>({1, 4, param.name == "q" ? 32 : 16, 64})) << param.name;
    }
  }
}

TEST(TensorRecipe, blocks_of_a_cluster_take_an_item_together_and_copy_shares_of_tiles) {
  const TileProgram program = tensor_program(attention_nest(), {.rows = 256, .columns = 80, .more = {"cluster(out.io, 2)"}});
  const LaunchRecipe recipe = compile_nvptx(program, {}).kernel.recipe;
  ASSERT_EQ(recipe.launches.size(), 1u);
  const LaunchNode& node = recipe.launches[0];
  EXPECT_EQ(node.block[0], 3 * 128);
  EXPECT_EQ(node.cluster[0], 2);
  const auto blocks = [&](std::int64_t queries) {
    return node.grid[0].evaluate([&](const std::string& name) { return name == "H" ? 3 : queries; });
  };
  EXPECT_EQ(blocks(256), 3 * 2);
  EXPECT_EQ(blocks(257), 3 * 2 * 2);  // the last cluster's second block has no row left, and copies for the first
  for (const KernelParam& param : node.params) {
    if (param.kind != KernelParam::Kind::tensor_map) continue;
    const bool shared = param.name == "k" || param.name == "v";
    EXPECT_EQ(param.box, (std::vector<int>{1, shared ? 40 : param.name == "q" ? 128 : 64, 64})) << param.name;
  }
}

}  // namespace
}  // namespace nestor::testing
