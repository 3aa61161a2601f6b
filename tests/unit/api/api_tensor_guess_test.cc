// The first guesses of the space for operators on tensor cores: they fit registers and shared memory, and plans are proved, for every
// operator with products in a row and for head sizes that fill no whole step of a product and no whole row of a copy.
#include "api/operators.h"
#include "api/report.h"
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/trial_steps.h"
#include "support/nests/tensor_nests.h"
#include "support/tensor/product_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace nestor {
namespace {

constexpr int kUnits = 132;

struct Problem {
  std::string op, variant;
  Sizes sizes;
  std::vector<std::int64_t> columns;  ///< of the first guesses' tiles, each once
};

class FirstGuess : public ::testing::TestWithParam<Problem> {};

TEST_P(FirstGuess, Fits) {
  const Nest nest = load_operator(GetParam().op, GetParam().variant);
  const Sizes sizes = complete_sizes(nest, GetParam().sizes);
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, kUnits));
  std::vector<std::int64_t> columns;
  bool planned = false;
  for (const Point& point : space->defaults()) {
    const auto values = named_values(*space, point);
    if (value_or(values, "warpgroups", 0) == 0) continue;
    const Candidate candidate = space->candidate(point);
    EXPECT_EQ(candidate.infeasible, "");
    // Operands in halves take more registers.
    if (value_or(values, "operand_halves", 0) == 0) columns.push_back(value_or(values, "columns", 0));
    if (planned) continue;
    planned = true;
    const testing::PlannedTensor plan(build_tile_program(schedules.replay(candidate.steps)));  // throws where it does not fit
    for (const nvptx::CircularBuffer& ring : plan.plan.circular_buffers) {
      if (ring.streamed) continue;
      const auto same = [&](const nvptx::CircularBuffer& other) { return !other.streamed && other.buffer == ring.buffer; };
      EXPECT_EQ(std::count_if(plan.plan.circular_buffers.begin(), plan.plan.circular_buffers.end(), same), 1)
          << plan.plan.buffer(ring.buffer).name;
    }
  }
  EXPECT_TRUE(planned);
  std::sort(columns.begin(), columns.end());
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  EXPECT_EQ(columns, GetParam().columns);
}

Sizes attention_sizes(std::int64_t head_dim, const Sizes& more = {}) {
  Sizes sizes{{"batch", 4}, {"heads", 16}, {"queries", 4096}, {"keys", 4096}, {"head_dim", head_dim}};
  sizes.insert(more.begin(), more.end());
  return sizes;
}

INSTANTIATE_TEST_SUITE_P(
    Operators, FirstGuess,
    ::testing::Values(Problem{"attention", "causal.f16", attention_sizes(32), {64, 128, 160}},
                      Problem{"attention", "prefix.bf16", attention_sizes(64, {{"prefix", 256}}), {64, 128, 160}},
                      Problem{"attention", "bf16", attention_sizes(40), {64, 128, 144, 160}},
                      Problem{"attention", "f16", attention_sizes(72), {64, 128, 160}},
                      Problem{"attention", "f16", attention_sizes(160), {64, 80}},
                      Problem{"attention", "f16", attention_sizes(248), {64, 80}},
                      Problem{"attention",
                              "gqa.bf16",
                              {{"batch", 16},
                               {"key_heads", 8},
                               {"group", 8},
                               {"queries", 2},
                               {"keys", 8192},
                               {"head_dim", 128},
                               {"value_dim", 128}},
                              {64, 80, 96, 128, 160}},
                      Problem{"attention_bias", "f16", attention_sizes(64), {64, 128, 160}},
                      Problem{"differential_attention", "bf16", attention_sizes(64, {{"value_dim", 64}}), {64, 80, 96, 112}},
                      Problem{"differential_attention", "bf16", attention_sizes(128, {{"value_dim", 128}}), {64}},
                      Problem{"matmul", "bf16", {{"m", 4096}, {"n", 4096}, {"k", 4096}}, {64, 128, 192, 256}},
                      Problem{"matmul", "f16", {{"m", 256}, {"n", 4096}, {"k", 4096}}, {64, 128, 160, 192, 256}},
                      Problem{
                          "matmul_bias_gelu", "f16", {{"m", 300}, {"n", 1000}, {"k", 520}}, {16, 32, 48, 64, 96, 128, 192, 256}},
                      Problem{"gated_mlp", "bf16", {{"rows", 8192}, {"width", 128}, {"hidden", 4096}}, {64, 112, 128}},
                      Problem{"evoformer_attention", "bf16", {{"rows", 128}, {"n", 256}, {"head_dim", 32}}, {64, 128, 160}}),
    [](const auto& info) {
      const Problem& p = info.param;
      std::string name = p.op + "_" + p.variant;
      for (const char* size : {"head_dim", "m"}) name += p.sizes.contains(size) ? std::to_string(p.sizes.at(size)) : "";
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

TEST(ProductSizes, AreFixedWhetherTheDefinitionSaysSoOrNot) {
  using Names = std::set<std::string>;
  const std::vector<std::tuple<std::string, std::string, Names>> cases{
      {"attention", "causal.bf16", {"head_dim"}},
      {"attention", "gqa.f16", {"head_dim", "value_dim"}},
      {"differential_attention", "f16", {"head_dim", "value_dim"}},
      {"evoformer_attention", "bf16", {"head_dim"}},
      {"gated_mlp", "f16", {"width"}},
      {"attention", "f32", {}},
      {"matmul", "f16", {}},
      {"layernorm", "bf16", {}}};
  for (const auto& [op, variant, expected] : cases) {
    Nest nest = load_operator(op, variant);
    for (SizeParam& size : nest.sizes) size.specialized = false;
    specialize_product_sizes(nest);
    Names fixed;
    for (const SizeParam& size : nest.sizes) {
      if (size.specialized) fixed.insert(size.name);
    }
    EXPECT_EQ(fixed, expected) << op << " " << variant;
  }
}

/// Steps of a space's best guess for tensor cores of sm_90, with some parameters changed.
std::vector<std::string> guessed_steps(const std::string& op, const std::string& variant, const NamedValues& changes) {
  const Nest nest = load_operator(op, variant);
  const Sizes sizes = complete_sizes(nest, {});
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, kUnits));
  NamedValues values = named_values(*space, space->defaults().front());
  for (const auto& [name, value] : changes) values[name] = value;
  const auto point = point_from(*space, values);
  EXPECT_TRUE(point.has_value()) << op << ": no such choices";
  if (!point) return {};
  const Candidate candidate = space->candidate(*point);
  EXPECT_EQ(candidate.infeasible, "");
  EXPECT_NO_THROW(build_tile_program(schedules.replay(candidate.steps)));
  std::vector<std::string> steps;
  for (const Step& step : candidate.steps) steps.push_back(describe(step));
  return steps;
}

bool has_step(const std::vector<std::string>& steps, const std::string& step) {
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

TEST(TensorSpace, AMaximumMayStayBehind) {
  EXPECT_TRUE(has_step(guessed_steps("attention", "bf16", {}), "apply_rule(online, largest)"));
  EXPECT_TRUE(has_step(guessed_steps("attention", "bf16", {{"rescale", 8}}), "apply_rule(online, largest, 8)"));
  EXPECT_TRUE(has_step(guessed_steps("attention", "lse.bf16", {{"rescale", 8}}), "apply_rule(online, largest, 8)"));
  const auto two = guessed_steps("differential_attention", "bf16", {{"rescale", 8}});
  EXPECT_EQ(std::count_if(two.begin(), two.end(), [](const std::string& step) { return step.ends_with(", 8)"); }), 2);
}

TEST(TensorSpace, TheCertificateSaysThatAMaximumMayStayBehind) {
  const auto verdicts = [](const std::vector<std::string>& rules) {
    const Schedule schedule = testing::tensor_schedule(testing::attention_nest(), {.rules = rules});
    std::string all;
    for (const auto& proof : certify(schedule, build_tile_program(schedule)).dependences) all += proof.verdict + "\n";
    return all;
  };
  const std::string relaxed = "relaxed: largest is accumulated together with its followers (rule online)";
  EXPECT_THAT(verdicts({"apply_rule exp2_scale", "apply_rule online largest"}), ::testing::HasSubstr(relaxed + "\n"));
  EXPECT_THAT(
      verdicts(testing::lazy_rules(8)),
      ::testing::HasSubstr(relaxed + "; it stays behind by up to 8 doublings of their terms, and no result depends on that\n"));
}

TEST(TensorSpace, BoundedScoresHaveNoMaximumUnlessTheRuleIsLeftOut) {
  const auto usual = guessed_steps("attention_softcap", "bf16", {});
  EXPECT_TRUE(has_step(usual, "apply_rule(fixed_extremum, largest)"));
  EXPECT_FALSE(has_step(usual, "apply_rule(online, largest)"));
  const auto without = guessed_steps("attention_softcap", "bf16", {{"rule.fixed_extremum", 0}});
  EXPECT_FALSE(has_step(without, "apply_rule(fixed_extremum, largest)"));
  EXPECT_TRUE(has_step(without, "apply_rule(online, largest)"));
  // Weights of f16 values may be rounded to f16, which holds no exp(50).
  EXPECT_TRUE(has_step(guessed_steps("attention_softcap", "f16", {}), "apply_rule(online, largest)"));
}

// The deferred factor may be 1 instead, by a condition: a sum over it is no sum of products.
TEST(TensorSpace, ARuleThatLeavesNoProductIsLeftOut) {
  const auto steps = guessed_steps("retention", "bf16", {});
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(), [](const std::string& step) { return step.starts_with("tensor_cores("); }));
  EXPECT_FALSE(has_step(steps, "apply_rule(defer_factor, weighted)"));
}

TEST(TensorSpace, LoopsOverTilesMayBeUnrolled) {
  const auto steps = guessed_steps("attention", "bf16", {{"unroll", 2}});
  EXPECT_TRUE(std::any_of(steps.begin(), steps.end(),
                          [](const std::string& step) { return step.starts_with("unroll(") && step.ends_with(", 2)"); }));
}

TEST(TensorSpace, ProductsOfOneOperandAreOneBlocksWork) {
  const Nest nest = testing::product_nest({.transposed = true, .gated = true});
  const Sizes sizes{{"M", 4096}, {"N", 4096}, {"K", 1024}};
  for (const int sm : {80, 90}) {
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(sm, (sm == 80 ? 163 : 227) << 10, kUnits));
    const Candidate candidate = space->candidate(space->defaults().front());
    ASSERT_EQ(candidate.infeasible, "");
    NvptxTarget target;
    target.sm = sm;
    const testing::PlannedTensor planned(build_tile_program(schedules.replay(candidate.steps)), target);  // proved
    EXPECT_EQ(planned.launches.kernels.size(), 1U);
    EXPECT_EQ(planned.plan.circular_buffers.size(), 3U);
    EXPECT_EQ(planned.op("sum").a_ring, planned.op("sum_c").a_ring);
  }
}

// Few queries of few heads leave most multiprocessors idle: the loop over keys is cut into parts, combined by a kernel of its own.
TEST(FewItems, AreCutIntoParts) {
  const Nest nest = load_operator("attention", "gqa.bf16");
  const auto first_guess = [&](std::int64_t batch) {
    const Sizes sizes = complete_sizes(nest, {{"batch", batch},
                                              {"key_heads", 8},
                                              {"group", 8},
                                              {"queries", 2},
                                              {"keys", 32768},
                                              {"head_dim", 128},
                                              {"value_dim", 128}});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, 227 << 10, kUnits));
    const Candidate candidate = space->candidate(space->defaults().front());
    EXPECT_EQ(candidate.infeasible, "");
    const TileProgram program = build_tile_program(schedules.replay(candidate.steps));
    const testing::PlannedTensor planned(program);  // proved
    EXPECT_EQ(planned.plan.pack, 8);
    EXPECT_EQ(planned.plan.rows(), 64);
    return planned.launches.kernels.size();
  };
  EXPECT_EQ(first_guess(16), 1u);  // as many blocks as multiprocessors without parts
  EXPECT_GT(first_guess(2), 1u);
}

}  // namespace
}  // namespace nestor
