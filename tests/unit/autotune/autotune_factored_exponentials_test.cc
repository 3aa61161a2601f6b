// Exponentials of sums in the space: first guesses have products of halves on tensor cores, and are right for terms without room, infinities, NaN.
#include "autotune/oracle/error_sum.h"
#include "autotune/oracle/rounding_model.h"
#include "codegen/gpu/kernel_plans.h"
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/element_codec.h"
#include "support/nests/exponential_nests.h"
#include "support/nests/nest_runs.h"
#include "support/nests/space_guesses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
const Sizes kLarge{{"B", 2}, {"N", 512}, {"C", 1024}};

/// k, v and w of some size; `spread` of exponents.
testing::NestInputs inputs_at(std::int64_t batch, std::int64_t terms, std::int64_t columns, double spread, ElementType type) {
  testing::NestInputs inputs{{{"B", batch}, {"N", terms}, {"C", columns}}, {}, {}};
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(-1, 1);
  const auto fill = [&](const char* tensor, std::int64_t elements, double most, ElementType as) {
    for (std::int64_t k = 0; k < elements; ++k) inputs.tensors[tensor].push_back(round_to(as, most * uniform(random)));
  };
  fill("k", batch * terms * columns, spread, type);
  fill("v", batch * terms * columns, 1, type);
  fill("w", terms * terms, spread, ElementType::f32);
  return inputs;
}

/// The first element that the kernel has elsewhere than the oracle; means of values up to 1 are off by twice what sums are.
std::string difference(const std::vector<double>& got, const std::vector<double>& want) {
  constexpr double kShare = 2 * 3.1 * 0x1p-16;
  if (std::string special = testing::special_difference(got, want); !special.empty()) return special;
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (std::isfinite(want[n]) && std::fabs(got[n] - want[n]) > kShare)
      return fmt::format("out[{}] is {}, not {}", n, got[n], want[n]);
  }
  return "";
}

std::string wrong(const Nest& nest, const TileProgram& program, const testing::NestInputs& inputs) {
  const std::vector<double> want = testing::run_oracle(nest, inputs, false).at("out");
  return difference(testing::run_emulated(compile_nvptx(program, {}), program, inputs).at("out"), want);
}

TEST(FactoredExponentialsSpace, FirstGuessesAreOneKernelOfProductsBehindTheirOperands) {
  for (const ElementType type : {ElementType::bf16, ElementType::f16}) {
    const Nest nest = exponential_sums(type);
    SpaceGuesses all(nest, kLarge);
    for (const std::size_t k : {0U, 1U}) {
      if (k == 1 && type == ElementType::f16) continue;
      ASSERT_TRUE(all.has_rule(k, "factor_exponential"));
      const TileProgram program = all.program(k);
      const CompiledNvptx compiled = compile_nvptx(program, {});
      ASSERT_EQ(compiled.plans->kernels.size(), 4U) << "halves of w, of exp(k) and of exp(k) v";
      ASSERT_TRUE(compiled.plans->kernels.back().tensor);
      EXPECT_EQ(wrong(nest, program, inputs_at(2, 21, 16, 3, type)), "");
      EXPECT_EQ(k > 0 ? "" : wrong(nest, program, inputs_at(1, 40, 9, 24, type)), "") << "some sums are direct";
    }
  }
}

/// q, k and v of some size, and decays that add up along the rows of a chunk.
testing::NestInputs decays_of(std::size_t chunks, std::size_t channels) {
  testing::NestInputs inputs{{{"C", static_cast<std::int64_t>(chunks)}}, {}, {}};
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (std::size_t n = 0; n < chunks * 64 * channels; ++n) {
    for (const char* tensor : {"q", "k", "v"}) inputs.tensors[tensor].push_back(round_to(ElementType::bf16, uniform(random)));
    const double before = n / channels % 64 == 0 ? 0 : inputs.tensors["g"][n - channels];
    inputs.tensors["g"].push_back(round_to(ElementType::f32, before - 0.02 * std::fabs(uniform(random))));
  }
  return inputs;
}

TEST(FactoredExponentialsSpace, ATriangleOfDecaysIsOnTensorCoresAndSoIsWhatItWeighs) {
  for (const bool wide : {false, true}) {
    const int channels = wide ? 128 : 64;
    const Nest nest = channel_decays(true, channels);
    SpaceGuesses all(nest, {{"C", 1024}});
    ASSERT_TRUE(all.has_rule(0, "factor_exponential"));
    EXPECT_EQ(all.has_rule(0, "zero_terms"), wide) << "weights that go through memory have zeros beside them";
    const TileProgram program = all.program(0);
    const CompiledNvptx compiled = compile_nvptx(program, {});
    EXPECT_EQ(std::count_if(compiled.plans->kernels.begin(), compiled.plans->kernels.end(),
                            [](const auto& kernel) { return kernel.tensor.has_value(); }),
              wide ? 2 : 1);
    const testing::NestInputs inputs = decays_of(2, static_cast<std::size_t>(channels));
    const auto want = testing::run_oracle(nest, inputs, false), got = testing::run_emulated(compiled, program, inputs);
    for (const char* tensor : {"known", "out"}) {
      for (std::size_t n = 0; n < want.at(tensor).size(); ++n)
        ASSERT_NEAR(got.at(tensor)[n], want.at(tensor)[n], 0.3) << tensor << n;  // up to 64 weights up to 30, rounded to 8 bits
    }
  }
}

TEST(FactoredExponentialsSpace, WithoutAnInputOf16BitsTheyStay) {
  SpaceGuesses all(exponential_sums(ElementType::f32), kLarge);
  EXPECT_FALSE(all.has_rule(0, "factor_exponential"));
}

/// Rows of w and columns of k with one special value or nothing else, and values of v.
testing::NestInputs special_inputs() {
  constexpr std::int64_t kTerms = 26, kColumns = 25;
  testing::NestInputs inputs = inputs_at(1, kTerms, kColumns, 1, ElementType::bf16);
  const std::vector<double> specials{kInfinity, -kInfinity, kNaN, 80, -80, 24, -60, -1e30, 3e38};
  auto &k = inputs.tensors["k"], &w = inputs.tensors["w"], &v = inputs.tensors["v"];
  for (std::int64_t n = 0; n < kTerms; ++n) {
    const auto kind = static_cast<std::size_t>(n / 2) % (specials.size() + 1);
    if (kind == specials.size()) continue;
    for (std::int64_t j = 0; j < kTerms; ++j) {
      if (n % 2 == 0 && j != 3) continue;
      w[static_cast<std::size_t>(n * kTerms + j)] = specials[kind];
      if (n < kColumns) k[static_cast<std::size_t>(j * kColumns + n)] = specials[kind];
    }
    if (n == 7) v[static_cast<std::size_t>(3 * kColumns + 22)] = kInfinity;
    if (n == 8) v[static_cast<std::size_t>(6 * kColumns + 23)] = 1e30;
  }
  // Each factor of a term underflows to 0 or nearly so, where the term does not: without the direct sum, 0 / 0.
  for (std::int64_t j = 0; j < kTerms; ++j) {
    w[static_cast<std::size_t>(24 * kTerms + j)] = j == 3 || j == 4 ? 15 : -100;
    k[static_cast<std::size_t>(j * kColumns + 24)] = j == 3 || j == 4 ? -100 : 15;
  }
  return inputs;
}

/// Special places alone: sums beside a few huge terms are as inexact as those are.
std::string special_wrong(const Nest& nest, const TileProgram& program) {
  const testing::NestInputs inputs = special_inputs();
  const std::vector<double> want = testing::run_oracle(nest, inputs, false).at("out");
  const std::vector<double> got = testing::run_emulated(compile_nvptx(program, {}), program, inputs).at("out");
  const auto count = [&](const auto& is) { return std::count_if(want.begin(), want.end(), is); };
  EXPECT_GT(count([](double value) { return std::isnan(value); }), 50);
  EXPECT_GT(count([](double value) { return std::isfinite(value); }), 50);
  if (std::string special = testing::special_difference(got, want); !special.empty()) return special;
  for (std::size_t n = 0; n < want.size(); ++n) {
    if (std::isfinite(want[n]) && std::fabs(got[n] - want[n]) > 1e-3 * (1 + std::fabs(want[n])))
      return fmt::format("out[{}] is {}, not {}", n, got[n], want[n]);
  }
  return "";
}

TEST(FactoredExponentialsSpace, TermsWithoutRoomAndInfinitiesAreAsDefined) {
  const Nest nest = exponential_sums();
  SpaceGuesses all(nest, kLarge);
  EXPECT_EQ(special_wrong(nest, all.program(0)), "");
}

/// The first guess of a nest that the rule has rewritten, and something else besides.
std::string wrong_with(const std::string& name, const std::function<void(Statement&)>& change) {
  const Nest nest = exponential_sums();
  SpaceGuesses all(nest, kLarge);
  const Candidate candidate = all.space->candidate(all.points.front());
  Nest changed = nest;
  std::vector<Step> steps;
  for (const Step& step : candidate.steps) {
    if (step.name == "apply_rule" && step.args.at(0) == "factor_exponential")
      changed = rule("factor_exponential").apply(changed, {step.args.at(1)}).nest;
    else
      steps.push_back(step);
  }
  Statement statement = changed.statement(name);
  change(statement);
  replace_statement(changed, statement);
  Schedule schedule{changed};
  for (const Step& step : steps) schedule = schedule.apply(step);
  return special_wrong(nest, build_tile_program(schedule));
}

TEST(FactoredExponentialsMutants, AreSeenInResults) {
  EXPECT_EQ(wrong_with("total_valued", [](Statement&) {}), "");
  const auto unguarded = [](Statement& valued) { valued.value = valued.value.args()[1]; };
  EXPECT_NE(wrong_with("total_valued", unguarded), "") << "rows that lost their terms";
  const auto twice = [](Statement& sum) {
    std::vector<ScalarExpr> args = sum.value.args();
    args[2] = args[2] * number(2);
    sum.value = sum.value.with_args(args);
  };
  EXPECT_NE(wrong_with("mean_kept_sum", twice), "");
  EXPECT_NE(wrong_with("total_right_3", [](Statement& half) { half.value = ScalarExpr::cast(ElementType::bf16, number(0)); }), "")
      << "a half";
}

TEST(FactoredExponentialsOracle, GrantsWhatHalvesMakeOfASum) {
  const RoundingModel model = rounding_model(exponential_sums());
  std::vector<bool> factors;
  for (const auto& product : model.statements) factors.push_back(product.factors);
  EXPECT_EQ(factors, (std::vector<bool>{false, true, false, true, false}));
  for (const auto& product : rounding_model(exponential_sums(ElementType::f32)).statements) EXPECT_FALSE(product.factors);
  ErrorSum error;
  error.start(0, 0);
  error.add(ReductionOp::add, ElementType::f32, 3, 0, 0, 0, 3);
  error.add(ReductionOp::add, ElementType::f32, -2, 0, 0, 3, 1);
  EXPECT_DOUBLE_EQ(error.error(1, std::nullopt, 1, kFactoredShare) - error.error(1, std::nullopt), 5 * kFactoredShare);
}

}  // namespace
}  // namespace nestor
