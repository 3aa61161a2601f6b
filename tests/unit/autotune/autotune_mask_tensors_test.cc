// Attention whose mask is a tensor of truth values or of wide integers, by keys and by queries and keys: on tensor cores with tensor copies
// and without, on the GPU without tensor cores, and on the host, against the definition.
#include "support/nests/masked_attention.h"
#include "support/nests/nest_runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

constexpr std::int64_t kHeads = 5, kQueries = 66, kKeys = 70, kDepth = 16;

/// Heads see no key, one, all, all but the last, and keys here and there.
bool sees(std::int64_t head, std::int64_t key) {
  const std::int64_t lengths[] = {0, 1, kKeys, kKeys - 1};
  return head < 4 ? key < lengths[head] : key % 3 == 1;
}

NestInputs inputs_for(const MaskForm& form) {
  NestInputs inputs{{{"H", kHeads}, {"Q", kQueries}, {"K", kKeys}}, {}, {}};
  std::mt19937 random(3);
  for (const auto& [name, rows] : {std::pair("q", kQueries), std::pair("k", kKeys), std::pair("v", kKeys)}) {
    for (std::int64_t n = 0; n < kHeads * rows * kDepth; ++n)
      inputs.tensors[name].push_back(round_to(ElementType::f16, std::uniform_real_distribution<double>(-1, 1)(random)));
  }
  for (std::int64_t h = 0; h < kHeads; ++h) {
    for (std::int64_t i = 0; i < (form.by_query ? kQueries : 1); ++i) {
      for (std::int64_t j = 0; j < kKeys; ++j) {
        const bool seen = sees(h, j) && (!form.by_query || (i + j) % 5 != 0 || h == 2);
        // 2^40 is 0 in its lower 32 bits, and is seen all the same.
        inputs.tensors["mask"].push_back(!seen ? 0 : form.type == ElementType::i64 && j % 2 == 0 ? 0x1p40 : 1);
      }
    }
  }
  return inputs;
}

std::string difference(const std::vector<double>& got, const std::vector<double>& want) {
  for (std::size_t n = 0; n < want.size(); ++n) {
    const bool special = !std::isfinite(want[n]) || !std::isfinite(got[n]);
    const bool same = special ? std::isnan(want[n]) && std::isnan(got[n]) : std::fabs(got[n] - want[n]) <= 5e-3;
    if (!same) return fmt::format("out[{}] is {}, not {}", n, got[n], want[n]);
  }
  return "";
}

struct MaskCase {
  std::string name;
  MaskForm form;
  Seen seen = Seen::all;
};

class MaskTensors : public ::testing::TestWithParam<MaskCase> {
 protected:
  Nest nest = masked_attention(GetParam().form, GetParam().seen);
  NestInputs inputs = inputs_for(GetParam().form);
  std::vector<double> want = run_oracle(nest, inputs, false).at("out");
};

TEST_P(MaskTensors, HaveRowsWithoutKeysInTheDefinition) {
  const auto is_nan = [&](std::int64_t head) { return std::isnan(want.at(static_cast<std::size_t>(head * kQueries * kDepth))); };
  EXPECT_EQ(is_nan(0), std::isinf(GetParam().form.hidden));
  for (const std::int64_t head : {2, 3}) EXPECT_FALSE(is_nan(head));
}

TEST_P(MaskTensors, OnTensorCores) {
  const TileProgram program = tensor_program(nest, {.rows = 64, .columns = 32, .warpgroups = 1});
  for (const NvptxTarget& target : {NvptxTarget{}, older()}) {
    const PlannedTensor planned(program, target);
    EXPECT_EQ(planned.plan.cores == nvptx::TensorCores::wgmma, target.sm == 90);
    EXPECT_EQ(difference(run_emulated(compile_nvptx(program, target), program, inputs).at("out"), want), "") << target.sm;
  }
}

TEST_P(MaskTensors, OnTensorCoresByTwoWarpgroupsThatOverlap) {
  const TileProgram program = tensor_program(
      nest,
      {.rows = 128, .columns = 32, .warpgroups = 2, .more = {"intra_warpgroup_overlap(out.io)", "a_from_registers(out.io)"}});
  EXPECT_EQ(difference(run_emulated(compile_nvptx(program, {}), program, inputs).at("out"), want), "");
}

TEST_P(MaskTensors, OnTensorCoresInTurnsAndByPairsOfBlocks) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)", "early_release(out.io)"},
        {"intra_warpgroup_overlap(out.io)", "persistent(out.io, 1)", "cluster(out.io, 2)"}}) {
    const bool pairs = more.size() > 2 && more.back().starts_with("cluster");
    const TileProgram program =
        tensor_program(nest, {.rules = lazy_rules(8), .rows = pairs ? 256 : 128, .columns = 32, .warpgroups = 2, .more = more});
    EXPECT_EQ(difference(run_emulated(compile_nvptx(program, {}), program, inputs).at("out"), want), "") << more.back();
  }
}

TEST_P(MaskTensors, OnTensorCoresInTilesThatFillNoWholeWordOfVotes) {
  for (const int columns : {64, 48}) {
    const TileProgram program = tensor_program(nest, {.rows = 64, .columns = columns, .warpgroups = 1});
    for (const NvptxTarget& target : {NvptxTarget{}, older()})
      EXPECT_EQ(difference(run_emulated(compile_nvptx(program, target), program, inputs).at("out"), want), "") << columns;
  }
}

TEST_P(MaskTensors, WithoutTensorCoresAndOnTheHost) {
  Schedule blocks(nest);
  for (const Statement& statement : nest.statements)
    blocks = blocks.apply(parse_step(fmt::format("gpu_blocks({}.h)", statement.name)));
  const TileProgram program = build_tile_program(blocks);
  EXPECT_EQ(difference(run_emulated(program, inputs).at("out"), want), "");
  const TileProgram plain = build_tile_program(Schedule(nest));
  EXPECT_EQ(difference(run_host(plain, inputs, detect_host()).at("out"), want), "");
  EXPECT_EQ(difference(run_host(plain, inputs, {"x86-64-v2", "", 16, 16}).at("out"), want), "");
  EXPECT_EQ(difference(run_program(plain, inputs).at("out"), want), "");
}

INSTANTIATE_TEST_SUITE_P(All, MaskTensors,
                         ::testing::Values(MaskCase{"bool_by_key", {}}, MaskCase{"i64_by_key", {.type = ElementType::i64}},
                                           MaskCase{"bool_by_key_with_a_finite_number", {.hidden = -1e4}},
                                           MaskCase{"bool_by_query_and_key", {.by_query = true}},
                                           MaskCase{"i64_by_query_and_key", {.type = ElementType::i64, .by_query = true}},
                                           MaskCase{"bool_under_a_causal_mask", {.hidden = -1e4}, Seen::causal}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nestor::testing
