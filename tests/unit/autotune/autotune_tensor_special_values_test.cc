// Kernels on tensor cores keep NaN and infinities as their definition has them (docs/values.md), with exponentials by the function unit and
// by polynomials, masked and not: code for compute capability 8.0, run thread by thread on the CPU, against the nest.
#include "codegen/gpu/mma/plan/tensor_exponents.h"
#include "support/nests/nest_runs.h"
#include "support/nests/tensor_nests.h"

#include <gtest/gtest.h>

namespace nestor::testing {
namespace {

const double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kQueries = 66, kKeys = 70, kDepth = 16;

NestInputs attention_inputs(double spread) {
  NestInputs inputs{{{"H", 1}, {"Q", kQueries}, {"K", kKeys}}, {}, {}};
  std::mt19937 random(3);
  for (const auto& [name, rows] : {std::pair("q", kQueries), std::pair("k", kKeys), std::pair("v", kKeys)}) {
    for (std::int64_t n = 0; n < rows * kDepth; ++n) {
      const double value = std::uniform_real_distribution<double>(-1, 1)(random);
      // Queries of one sign give infinite keys scores of one sign.
      inputs.tensors[name].push_back(round_to(ElementType::f16, name == std::string("q") ? spread * std::fabs(value) : value));
    }
  }
  return inputs;
}

/// Element 0 of row `row`, or all of the row.
void put(NestInputs& inputs, const char* tensor, std::int64_t row, double value, bool all = true) {
  for (std::int64_t d = 0; d < (all ? kDepth : 1); ++d)
    inputs.tensors[tensor][static_cast<std::size_t>(row * kDepth + d)] = value;
}

using NamedInputs = std::vector<std::pair<std::string, NestInputs>>;

/// The nest on all inputs, by the definition and by emulated code of each schedule.
void expect_definition(const Nest& nest, const std::vector<TensorSteps>& schedules, const NamedInputs& inputs) {
  std::vector<Results> want;
  for (const auto& [name, input] : inputs) want.push_back(run_oracle(nest, input, false));
  for (const TensorSteps& steps : schedules) {
    const TileProgram program = tensor_program(nest, steps);
    const CompiledNvptx compiled = compile_nvptx(program, older());
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      EXPECT_EQ(special_difference(run_emulated(compiled, program, inputs[k].second).at("out"), want[k].at("out")), "")
          << inputs[k].first << ", " << (steps.more.empty() ? "function unit" : steps.more[0]);
    }
  }
}

TensorSteps small_steps(const std::string& polynomial = "") {
  TensorSteps steps{.rows = 64, .columns = 32, .warpgroups = 1};
  if (!polynomial.empty()) steps.more = {polynomial};
  return steps;
}

NamedInputs special_inputs() {
  NamedInputs list{{"ordinary", attention_inputs(1)}};
  const auto add = [&](const std::string& name, const std::function<void(NestInputs&)>& change) {
    list.emplace_back(name, attention_inputs(1));
    change(list.back().second);
  };
  add("a query of NaN", [](NestInputs& x) { put(x, "q", 5, kNaN); });
  add("one element of the first key is NaN", [](NestInputs& x) { put(x, "k", 0, kNaN, false); });
  add("one element of a key is NaN", [](NestInputs& x) { put(x, "k", 43, kNaN, false); });
  add("the last key is NaN", [](NestInputs& x) { put(x, "k", kKeys - 1, kNaN); });
  add("a key of infinity", [](NestInputs& x) { put(x, "k", 40, kInf); });
  add("the last key is of infinity", [](NestInputs& x) { put(x, "k", kKeys - 1, kInf); });
  add("some keys of infinity", [](NestInputs& x) {
    for (const std::int64_t j : {0, 9, 33, 68}) put(x, "k", j, kInf);
  });
  add("a query of infinity", [](NestInputs& x) { put(x, "q", 5, kInf, false); });
  add("some keys of minus infinity", [](NestInputs& x) {
    for (const std::int64_t j : {0, 1, 30, 31, 32, 69}) put(x, "k", j, -kInf);
  });
  add("all keys of minus infinity", [](NestInputs& x) {
    for (std::int64_t j = 0; j < kKeys; ++j) put(x, "k", j, -kInf);
  });
  add("the first tiles of minus infinity", [](NestInputs& x) {
    for (std::int64_t j = 0; j < 64; ++j) put(x, "k", j, -kInf);
  });
  return list;
}

TEST(TensorSpecialValues, AttentionOfAllKeys) {
  NamedInputs inputs = special_inputs();
  for (const double value : {kNaN, kInf}) {
    inputs.emplace_back(fmt::format("a value of {}", value), attention_inputs(1));
    put(inputs.back().second, "v", 40, value, false);
  }
  expect_definition(attention_nest({.depth = static_cast<int>(kDepth)}),
                    {small_steps(), small_steps("exp2_polynomial(out.io, 8)"), small_steps("exp2_polynomial(out.io, 16)"),
                     small_steps("operand_halves(out.io)")},
                    inputs);
}

NamedInputs weighed(NamedInputs inputs) {
  for (auto& [name, input] : inputs) {
    input.tensors["weight"].assign(static_cast<std::size_t>(kQueries), 1.5);
    const double special[] = {0, -0.0, -1, kNaN, kInf, 1e-40};
    std::copy(std::begin(special), std::end(special), input.tensors["weight"].begin());
  }
  return inputs;
}

/// What maxima start from may be -inf or NaN. The last tile is ragged: its hidden keys add NaN to sums that are NaN.
TEST(TensorSpecialValues, MaximaThatStartFromLogarithms) {
  expect_definition(attention_nest({.depth = static_cast<int>(kDepth), .started = true}),
                    {small_steps(), small_steps("exp2_polynomial(out.io, 8)")}, weighed(special_inputs()));
}

/// Hidden keys would add exp(-inf + inf), beside sums that are infinite.
TEST(TensorSpecialValues, ShiftsThatMayBeInfinite) {
  TensorSteps steps = small_steps();
  steps.rules = {};
  expect_definition(attention_nest({.depth = static_cast<int>(kDepth), .shifted = true}), {steps}, weighed(special_inputs()));
}

/// The maximum that weights are relative to stays behind the true one.
TEST(TensorSpecialValues, MaximaThatStayBehind) {
  TensorSteps steps = small_steps("exp2_polynomial(out.io, 16)");
  steps.rules = lazy_rules(8);
  expect_definition(attention_nest({.depth = static_cast<int>(kDepth)}), {steps}, special_inputs());
}

/// What a mask hides of keys does not show; values are finite where it hides them.
TEST(TensorSpecialValues, CausalAttention) {
  expect_definition(attention_nest({.seen = Seen::causal, .depth = static_cast<int>(kDepth)}),
                    {small_steps(), small_steps("exp2_polynomial(out.io, 12)"), small_steps("operand_halves(out.io)")},
                    special_inputs());
}

/// Causal attention with weights x / (1 + exp(-x)) of the scores.
Nest silu_nest() {
  Nest nest = linear_attention_nest(ElementType::f16, static_cast<int>(kDepth));
  for (Statement& statement : nest.statements) {
    if (statement.name != "score") continue;
    const ScalarExpr x = statement.value;
    statement.value = samples::operator/(
        x, samples::operator+(samples::number(1), samples::apply(ScalarOp::exp, samples::apply(ScalarOp::neg, x))));
  }
  return nest;
}

TEST(TensorSpecialValues, PolynomialsBeyondTheRangeOfPowers) {
  TensorSteps steps = small_steps("exp2_polynomial(out.io, 16)");
  steps.rules = {};
  NamedInputs inputs{{"small", attention_inputs(1)}, {"large", attention_inputs(300)}, {"NaN", attention_inputs(1)}};
  put(inputs.back().second, "q", 7, kNaN, false);
  expect_definition(silu_nest(), {steps}, inputs);
}

nvptx::Exponents exponents_of_op(const Nest& nest, const TensorSteps& steps, const std::string& name) {
  const TileProgram program = tensor_program(nest, steps);
  const PlannedTensor planned(program);
  for (std::size_t k = 0; k < planned.plan.ops.size(); ++k) {
    const nvptx::TensorOp& op = planned.plan.ops[k];
    if (op.op.name == name && op.kind == nvptx::TensorOp::Kind::map)
      return nvptx::exponents_of(planned.plan, static_cast<int>(k), true);
  }
  internal_error("no op {}", name);
}

/// Terms relative to a row's maximum need no test of each element; what nothing bounds has all of them.
TEST(TensorSpecialValues, WhatIsKnownOfExponents) {
  const nvptx::Exponents relative = exponents_of_op(attention_nest(), {}, "power");
  EXPECT_TRUE(relative.most);
  EXPECT_GE(relative.taint, 0);
  EXPECT_FALSE(relative.least);
  const nvptx::Exponents unknown = exponents_of_op(silu_nest(), {.rules = {}}, "score");
  EXPECT_FALSE(unknown.most);
  EXPECT_FALSE(unknown.least);
  EXPECT_EQ(unknown.taint, -1);
}

/// Attention whose scores are x + 300 (exp(x) - exp(x / 2)^2), which is x: functions before the exponential of a softmax.
Nest bent_scores_nest() {
  using samples::operator+, samples::operator-, samples::operator*, samples::number, samples::apply;
  Nest nest = attention_nest({.depth = static_cast<int>(kDepth)});
  for (Statement& statement : nest.statements) {
    if (statement.name != "score") continue;
    const ScalarExpr x = statement.value, root = apply(ScalarOp::exp, x * number(0.5));
    statement.value = x + number(300) * (apply(ScalarOp::exp, x) - root * root);
  }
  return nest;
}

/// A polynomial of few terms is near enough for weights, which products round to 16 bits, and not for what exponents are made of.
TEST(TensorSpecialValues, PolynomialsMakeNoExponents) {
  const auto approximate = [](const Nest& nest, const TensorSteps& steps, const std::string& name) {
    const TileProgram program = tensor_program(nest, steps);
    const PlannedTensor planned(program);
    for (std::size_t k = 0; k < planned.plan.ops.size(); ++k) {
      const nvptx::TensorOp& op = planned.plan.ops[k];
      if (op.op.name == name && op.kind == nvptx::TensorOp::Kind::map)
        return nvptx::may_be_approximate(planned.plan, static_cast<int>(k));
    }
    internal_error("no op {}", name);
  };
  EXPECT_TRUE(approximate(attention_nest(), {}, "power"));
  EXPECT_TRUE(approximate(silu_nest(), {.rules = {}}, "score")) << "its scores are weights";
  EXPECT_TRUE(approximate(bent_scores_nest(), {}, "power"));
  EXPECT_FALSE(approximate(bent_scores_nest(), {}, "score"));
  const auto results = [](const TensorSteps& steps) {
    const TileProgram program = tensor_program(bent_scores_nest(), steps);
    return run_emulated(compile_nvptx(program, older()), program, attention_inputs(1)).at("out");
  };
  const std::vector<double> exact = results(small_steps()), near = results(small_steps("exp2_polynomial(out.io, 16)"));
  for (std::size_t k = 0; k < exact.size(); ++k) EXPECT_NEAR(near[k], exact[k], 1e-3) << k;
}

/// Kernels say where they multiply what the definition leaves out.
TEST(TensorSpecialValues, MasksThatCutTilesNeedFiniteValues) {
  const auto needed = [](Seen seen) { return certify_kernels(tensor_program(attention_nest({.seen = seen})), {}).needed; };
  EXPECT_TRUE(needed(Seen::all).empty());
  ASSERT_EQ(needed(Seen::causal).size(), 1U);
  EXPECT_NE(needed(Seen::causal).front().find("multiplies whole tiles of v"), std::string::npos);
}

}  // namespace
}  // namespace nestor::testing
