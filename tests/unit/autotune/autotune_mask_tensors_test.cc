// Attention whose mask is a tensor of truth values or of wide integers, by keys and by queries and keys: on tensor cores with tensor copies
// and without, on the GPU without tensor cores, and on the host, against the definition.
#include "support/nests/nest_runs.h"
#include "support/nests/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

constexpr std::int64_t kHeads = 5, kQueries = 66, kKeys = 70, kDepth = 16;

/// attention_nest with scores of -inf, or of a finite number, where mask[h, j] (or mask[h, i, j]) is 0.
struct MaskForm {
  ElementType type = ElementType::boolean;
  bool by_query = false;
  double hidden = -std::numeric_limits<double>::infinity();
};

Nest masked_attention(const MaskForm& form, Seen seen = Seen::all) {
  Nest nest = attention_nest({.seen = seen, .depth = static_cast<int>(kDepth)});
  const std::vector<std::string> shape =
      form.by_query ? std::vector<std::string>{"H", "Q", "K"} : std::vector<std::string>{"H", "K"};
  Tensor mask{"mask", form.type, TensorRole::input, {}};
  for (const std::string& extent : shape) mask.shape.emplace_back(isl_context(), "[H, Q, K] -> { [(" + extent + ")] }");
  nest.tensors.insert(nest.tensors.begin(), mask);
  for (Statement& statement : nest.statements) {
    if (statement.name != "score") continue;
    const std::string at = form.by_query ? "mask[h, i, j]" : "mask[h, j]";
    statement.reads.push_back({"mask", isl::map(isl_context(), "[H, Q, K] -> { score[h, i, j] -> " + at + " }")});
    const ScalarExpr element = samples::read(static_cast<int>(statement.reads.size()) - 1, form.type);
    const ScalarExpr seen_key =
        form.type == ElementType::boolean
            ? element
            : ScalarExpr::make(ScalarOp::logical_not,
                               {ScalarExpr::make(ScalarOp::eq, {ScalarExpr::cast(ElementType::i32, element),
                                                                ScalarExpr::constant(0, ElementType::i32)})});
    statement.value = ScalarExpr::make(ScalarOp::select, {seen_key, statement.value, samples::number(form.hidden)});
  }
  validate(nest);
  return nest;
}

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
