// Operands in halves (step operand_halves): what products add up is as near to f32 as two 16-bit numbers are, with infinities and NaN where the
// definition has them. Emitted code runs in the emulator; the same kernels with rounded operands are off by as much as 16 bits are.
#include "autotune/space/nest/nest_space.h"
#include "autotune/trial/base_schedules.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/plan/tensor_exponents.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "codegen/proof/program_proof.h"
#include "support/nests/nest_runs.h"
#include "support/nests/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace nestor::testing {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kDepth = 16;

/// One kernel: its nest, its steps, and a target.
struct HalvesCase {
  std::string name;
  ElementType type = ElementType::bf16;
  Seen seen = Seen::causal;
  int sm = 90;
  TensorSteps steps{.rows = 64, .columns = 32, .warpgroups = 1};

  Nest nest() const { return linear_attention_nest(type, kDepth, seen); }
  TileProgram program(bool halves) const {
    TensorSteps all = steps;
    all.rules.clear();
    if (halves) all.more.emplace_back("operand_halves(out.io)");
    return tensor_program(nest(), all);
  }
  NvptxTarget target() const { return sm == 80 ? older() : NvptxTarget{}; }
  /// Of the second product, on the value of one of its terms. In f16 small ones are off by a number of their own.
  double unit() const { return type == ElementType::bf16 ? 0x1p-16 : 0x1p-22; }
  double least() const { return type == ElementType::bf16 ? 0 : 0x1p-24; }
  friend std::ostream& operator<<(std::ostream& out, const HalvesCase& test) { return out << test.name; }
};

NestInputs random_inputs(const HalvesCase& test, std::int64_t queries, std::int64_t keys, double scale = 1) {
  NestInputs inputs{{{"H", 2}, {"Q", queries}, {"K", keys}}, {}, {{"scale", scale}}};
  std::mt19937 random(11);
  for (const auto& [name, rows] : {std::pair("q", queries), std::pair("k", keys), std::pair("v", keys)}) {
    for (std::int64_t n = 0; n < 2 * rows * kDepth; ++n)
      inputs.tensors[name].push_back(round_to(test.type, std::uniform_real_distribution<double>(-1, 1)(random)));
  }
  return inputs;
}

/// The sums of magnitudes that results are made of: the same nest over what is not negative.
std::vector<double> magnitudes(const HalvesCase& test, NestInputs inputs) {
  for (auto& [name, values] : inputs.tensors) {
    for (double& value : values) value = std::fabs(value);
  }
  return run_oracle(test.nest(), inputs, false).at("out");
}

std::vector<double> run(const HalvesCase& test, bool halves, const NestInputs& inputs) {
  const TileProgram program = test.program(halves);
  NvptxTarget target = test.target();
  return run_emulated(compile_nvptx(program, target), program, inputs).at("out");
}

/// The largest error beside what sums of f32 may be off, in units of the magnitudes.
double worst(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& magnitude) {
  double most = 0;
  for (std::size_t n = 0; n < want.size(); ++n) most = std::max(most, std::fabs(got[n] - want[n]) / magnitude[n]);
  return most;
}

class OperandHalves : public ::testing::TestWithParam<HalvesCase> {};

std::vector<HalvesCase> cases() {
  std::vector<HalvesCase> list;
  for (const ElementType type : {ElementType::bf16, ElementType::f16}) {
    const std::string suffix = fmt::format("_{}", to_string(type));
    list.push_back({"causal" + suffix, type});
    list.push_back({"all" + suffix, type, Seen::all});
    list.push_back({"single_warps" + suffix, type, Seen::causal, 80});
    list.push_back({"late" + suffix,
                    type,
                    Seen::causal,
                    90,
                    {.rows = 128, .columns = 32, .more = {"intra_warpgroup_overlap(out.io)", "ping_pong(out.io)"}}});
    list.push_back({"two_row_tiles" + suffix, type, Seen::all, 90, {.rows = 128, .columns = 48, .warpgroups = 1}});
    list.push_back({"two_row_tiles_of_warps" + suffix, type, Seen::all, 80, {.rows = 128, .columns = 32, .warpgroups = 1}});
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Cases, OperandHalves, ::testing::ValuesIn(cases()), [](const auto& info) { return info.param.name; });

TEST_P(OperandHalves, are_as_exact_as_two_numbers) {
  const HalvesCase& test = GetParam();
  const NestInputs inputs = random_inputs(test, 75, 83);  // ragged in rows and columns
  const std::vector<double> want = run_oracle(test.nest(), inputs, false).at("out"), scale = magnitudes(test, inputs);
  const double kSums = 0x1p-22;  // of f32, here
  EXPECT_LT(worst(run(test, true, inputs), want, scale), test.unit() + test.least() + kSums);
  // A second number left out shows: errors of independent terms stay within some bits of one rounding.
  EXPECT_GT(worst(run(test, false, inputs), want, scale), 16 * (test.unit() + test.least() + kSums));
}

/// Each result is one score: the keys and the values are unit matrices.
NestInputs scores_alone(const HalvesCase& test, const std::vector<double>& scores, double scale) {
  const auto rows = static_cast<std::int64_t>(scores.size()) / kDepth;
  NestInputs inputs{{{"H", 2}, {"Q", rows}, {"K", rows}}, {}, {{"scale", scale}}};
  for (const char* name : {"q", "k", "v"}) inputs.tensors[name].assign(static_cast<std::size_t>(2 * rows * kDepth), 0);
  for (std::size_t n = 0; n < 2 * scores.size(); ++n) inputs.tensors["q"][n] = round_to(test.type, scores[n % scores.size()]);
  for (std::int64_t h = 0; h < 2; ++h) {
    for (std::int64_t d = 0; d < kDepth; ++d) {
      for (const char* name : {"k", "v"}) inputs.tensors[name][static_cast<std::size_t>((h * rows + d) * kDepth + d)] = 1;
    }
  }
  return inputs;
}

/// Numbers of all sizes that the type has, of either sign, and zeros.
std::vector<double> numbers_of_all_sizes(ElementType type, std::size_t count) {
  std::mt19937 random(5);
  std::vector<double> list{0.0, -0.0};
  const auto exponents = type == ElementType::f16 ? std::pair(-24, 15) : std::pair(-60, 60);
  while (list.size() < count) {
    const double value = std::ldexp(std::uniform_real_distribution<double>(1, 2)(random),
                                    std::uniform_int_distribution<int>(exponents.first, exponents.second)(random));
    list.push_back(random() % 2 == 0 ? value : -value);
  }
  return list;
}

TEST(OperandHalvesOfNumbers, are_off_by_so_much_of_each) {
  for (const HalvesCase& test :
       {HalvesCase{"bf16", ElementType::bf16, Seen::all}, HalvesCase{"f16", ElementType::f16, Seen::all}}) {
    // f32 numbers that no 16 bits hold; of f16, also such that the scale makes too large for one number, and not for two.
    for (const double scale : {1.0, double{1.2345678F}, double{0.7F}}) {
      const NestInputs inputs = scores_alone(test, numbers_of_all_sizes(test.type, 16 * kDepth), scale);
      const std::vector<double> got = run(test, true, inputs);
      for (std::size_t n = 0; n < got.size(); ++n) {
        const double score = static_cast<float>(inputs.tensors.at("q")[n] * double{static_cast<float>(scale)});
        const bool large = test.type == ElementType::f16 && std::fabs(score) > 65504;
        EXPECT_LE(std::fabs(got[n] - score), (large ? 0x1p-11 : test.unit() * 1.001) * std::fabs(score) + test.least()) << score;
      }
    }
  }
}

/// Values that are infinite or NaN, and scores that are: as the definition has them, exact 16-bit scores and zeros among them.
TEST(OperandHalvesOfNumbers, keep_infinities_and_nan) {
  for (const HalvesCase& test : {HalvesCase{"bf16", ElementType::bf16, Seen::all}, HalvesCase{"f16", ElementType::f16, Seen::all},
                                 HalvesCase{"old", ElementType::bf16, Seen::all, 80}}) {
    std::vector<double> scores = numbers_of_all_sizes(test.type, 16 * kDepth);
    for (std::size_t n = 2; n < scores.size(); n += 3) scores[n] = static_cast<double>(n % 7) - 3;  // exact, and zeros
    // Nothing is promised of an infinity and what f16 may round to 0 (docs/values.md).
    for (double& score : scores)
      score = test.type == ElementType::f16 && std::fabs(round_to(test.type, score)) * 0.7 <= 0x1p-24 ? 0 : score;
    for (const double scale : {1.0, double{0.7F}, 1e30}) {
      for (const double value : {kInf, -kInf, kNaN, 0.0}) {
        NestInputs inputs = scores_alone(test, scores, scale);
        if (scale > 1e10 && test.type == ElementType::f16) continue;
        for (const std::size_t row : {0, 3, 8}) inputs.tensors["v"][row * kDepth + row] = value;
        const std::vector<double> want = run_oracle(test.nest(), inputs, false).at("out"), got = run(test, true, inputs);
        for (std::size_t n = 0; n < want.size(); ++n) {
          const bool same = std::isnan(want[n])   ? std::isnan(got[n])
                            : std::isinf(want[n]) ? got[n] == want[n]
                                                  : std::isfinite(got[n]);
          EXPECT_TRUE(same) << test.name << ": " << got[n] << ", not " << want[n] << " of " << inputs.tensors["q"][n] * scale;
        }
      }
    }
  }
}

TEST(OperandHalvesOfNumbers, keep_scores_that_are_infinite) {
  const HalvesCase test{"bf16", ElementType::bf16, Seen::all};
  std::vector<double> scores(16 * kDepth, 1);
  scores[3] = scores[kDepth + 4] = 3e38;
  scores[7] = scores[2 * kDepth + 4] = -3e38;
  NestInputs inputs = scores_alone(test, scores, 10);  // infinite as f32
  inputs.tensors["v"][1] = inputs.tensors["v"][2 * kDepth + 3] = kInf;
  const std::vector<double> want = run_oracle(test.nest(), inputs, false).at("out"), got = run(test, true, inputs);
  for (std::size_t n = 0; n < want.size(); ++n)
    EXPECT_TRUE(std::isnan(want[n]) ? std::isnan(got[n])
                                    : std::fabs(got[n] - want[n]) <= 1e-5 * std::fabs(want[n]) || got[n] == want[n])
        << got[n] << ", not " << want[n];
}

/// Softmaxes whose sums are corrected while maxima move, of one map and of two, with blocks that share work in several ways.
TEST(OperandHalvesOfNumbers, weights_of_softmaxes_are_as_exact) {
  struct Case {
    int maps;
    std::vector<std::string> more;
    int rows = 128;
  };
  for (const Case& test :
       {Case{1,
             {"intra_warpgroup_overlap(out.io)", "early_release(out.io)", "persistent(out.io, 1)", "dynamic_scheduler(out.io)"}},
        Case{1, {"intra_warpgroup_overlap(out.io)", "cluster(out.io, 2)"}, 256},
        Case{2, {"intra_warpgroup_overlap(out.io, 2)", "a_from_registers(out.io)"}},
        Case{2, {"intra_warpgroup_overlap(out.io, 1)", "ping_pong(out.io)"}}}) {
    const Nest nest = attention_nest(
        {.seen = Seen::causal, .type = ElementType::bf16, .result = ElementType::f32, .depth = kDepth, .maps = test.maps});
    NestInputs inputs{{{"H", 2}, {"Q", 75}, {"K", 83}}, {}, {}};
    std::mt19937 random(7);
    for (const Tensor& tensor : nest.tensors) {
      if (tensor.role != TensorRole::input) continue;
      for (std::size_t n = 0; n < elements_of(shape_at(tensor, inputs.sizes)); ++n)
        inputs.tensors[tensor.name].push_back(round_to(tensor.type, std::uniform_real_distribution<double>(-2, 2)(random)));
    }
    const std::vector<double> want = run_oracle(nest, inputs, false).at("out"), ones(want.size(), 1);
    for (const bool halves : {false, true}) {
      TensorSteps steps{.rows = test.rows, .columns = 32, .more = test.more};
      if (test.maps == 2) steps.rules = two_map_rules();
      if (halves) steps.more.emplace_back("operand_halves(out.io)");
      const double error = worst(run_emulated(tensor_program(nest, steps), inputs).at("out"), want, ones);
      EXPECT_LT(error, halves ? 3e-5 : 1);
      EXPECT_GT(error, halves ? 0 : 2e-4);
    }
  }
}

/// A weighting whose exponentials may be polynomials where they are rounded, and only there.
TEST(OperandHalvesPlan, what_is_not_rounded_is_not_approximate) {
  const Nest nest = attention_nest({.depth = kDepth});
  for (const bool halves : {false, true}) {
    TensorSteps steps{.rows = 64, .columns = 32, .warpgroups = 1};
    if (halves) steps.more = {"operand_halves(out.io)"};
    const PlannedTensor planned(tensor_program(nest, steps));
    const auto power = static_cast<int>(&planned.op("power") - planned.plan.ops.data());
    EXPECT_EQ(may_be_approximate(planned.plan, power), !halves);
    EXPECT_EQ(planned.op("weighted").halves, halves ? 2 : 1);
    EXPECT_EQ(planned.op("dot").halves, 1);
  }
}

TEST(OperandHalvesPlan, a_number_left_out_or_added_has_no_proof) {
  const HalvesCase test;
  for (const bool halves : {false, true}) {
    const PlannedTensor planned(test.program(halves));
    const nvptx::TensorCertificate certificate = check_tensor_plan(planned.plan);
    EXPECT_THAT(certificate.violations, ::testing::IsEmpty());
    EXPECT_EQ(std::any_of(certificate.proved.begin(), certificate.proved.end(),
                          [](const std::string& text) { return text.find("two 16-bit numbers") != std::string::npos; }),
              halves);
    for (std::size_t k = 0; k < planned.plan.ops.size(); ++k) {
      nvptx::TensorPlan mutant = planned.plan;
      if (mutant.ops[k].kind != nvptx::TensorOp::Kind::product) continue;
      mutant.ops[k].halves = 3 - mutant.ops[k].halves;
      EXPECT_THAT(check_tensor_plan(mutant).violations, ::testing::ElementsAre(::testing::HasSubstr("16-bit numbers, not as")));
    }
  }
}

/// The guesses of a space for an H100, for long rows.
struct Guesses {
  explicit Guesses(const Nest& nest, int sm = 90)
      : sizes(complete_sizes(nest, {{"H", 64}, {"Q", 2048}, {"K", 2048}})),
        schedules(nest_for_tuning(nest, sizes)),
        space(make_nest_space(schedules, sizes, gpu_space_limits(sm, NvptxTarget{}.shared_limit, 132))),
        points(space->defaults()) {}
  /// operand_halves of guess `k` on tensor cores; -1: it is another one, or the space has no such choice.
  std::int64_t halves(std::size_t k) const {
    const NamedValues values = named_values(*space, points.at(k));
    return value_or(values, "warpgroups", 0) > 0 ? value_or(values, "operand_halves", -1) : -1;
  }

  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  std::vector<Point> points;
};

TEST(OperandHalvesSearch, halves_come_first_where_terms_may_cancel) {
  for (const int sm : {80, 90}) {
    Guesses guesses(linear_attention_nest(ElementType::bf16, 64), sm);
    EXPECT_EQ(guesses.halves(0), 1);
    EXPECT_EQ(guesses.halves(1), 0);
    int feasible = 0;
    for (std::size_t k = 0; k < guesses.points.size() && feasible < 3; ++k) {
      if (guesses.halves(k) != 1) continue;
      const Candidate candidate = guesses.space->candidate(guesses.points[k]);
      ASSERT_EQ(candidate.infeasible, "");
      const Schedule schedule = guesses.schedules.replay(candidate.steps);
      const TileProgram program = build_tile_program(schedule);
      NvptxTarget target;
      target.sm = sm;
      const auto plans = plan_kernels(program, target);  // proved
      EXPECT_TRUE(std::any_of(plans->kernels.begin(), plans->kernels.end(), [](const PlannedKernel& kernel) {
        return kernel.tensor && std::any_of(kernel.tensor->ops.begin(), kernel.tensor->ops.end(),
                                            [](const nvptx::TensorOp& op) { return op.halves == 2; });
      }));
      EXPECT_EQ(prove_program(program, schedule).verdict, ProofVerdict::proved);
      ++feasible;
    }
    EXPECT_EQ(feasible, 3);
  }
}

TEST(OperandHalvesSearch, halves_come_last_where_no_weight_is_negative) {
  const Guesses guesses(attention_nest({.type = ElementType::bf16, .depth = 64}));
  std::size_t rounded = 0, halves = 0;
  for (std::size_t k = 0; k < guesses.points.size(); ++k) {
    halves += guesses.halves(k) == 1 ? 1 : 0;
    if (guesses.halves(k) != 0) continue;
    EXPECT_EQ(halves, 0U);
    ++rounded;
  }
  EXPECT_GT(rounded, halves);
  EXPECT_GT(halves, 0U);
}

TEST(OperandHalvesSearch, weights_of_16_bits_have_no_halves) {
  Nest nest = attention_nest({.type = ElementType::bf16, .depth = 64});
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "power") tensor.type = ElementType::bf16;
  }
  for (Statement& statement : nest.statements) {
    if (statement.name == "power") statement.value = ScalarExpr::cast(ElementType::bf16, statement.value);
  }
  const Guesses guesses(nest);
  for (const Parameter& parameter : guesses.space->parameters()) EXPECT_NE(parameter.name, "operand_halves");
}

}  // namespace
}  // namespace nestor::testing
