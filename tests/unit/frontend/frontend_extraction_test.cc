// What the front end makes of definitions: domains, accesses, reductions, names.
#include <gtest/gtest.h>

#include "frontend/halide_frontend.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_json.h"
#include "poly/nest/nest_sets.h"

namespace {

using namespace Halide;
using nestor::extract_nest;
using nestor::HalideDefinition;
using nestor::Nest;
using nestor::Statement;

void expect_domain(const Nest& nest, const std::string& statement, const std::string& text) {
  const isl::set expected = nestor::parse_set(text, "expected domain");
  const isl::set found = nest.statement(statement).domain.intersect_params(nestor::full_context(nest));
  EXPECT_TRUE(found.is_equal(expected.intersect_params(nestor::full_context(nest)))) << nestor::isl_text(found) << "\nis not\n"
                                                                                     << text;
}

void expect_access(const nestor::Access& access, const Statement& statement, const std::string& text) {
  const isl::map expected = nestor::parse_map(text, "expected access");
  EXPECT_TRUE(access.relation.intersect_domain(statement.domain).is_equal(expected.intersect_domain(statement.domain)))
      << nestor::isl_text(access.relation) << "\nis not\n"
      << text;
}

std::int64_t extent(const Nest& nest, const std::string& tensor, std::size_t dim, const nestor::Sizes& sizes) {
  return nestor::shape_at(nest.tensor(tensor), sizes).at(dim);
}

std::string value_of(const Statement& statement) {
  return statement.value.str([](int k) { return "r" + std::to_string(k); }, [](int k) { return "i" + std::to_string(k); });
}

struct CausalAttention {
  Param<int> n{"n"}, m{"m"}, depth{"depth"};
  ImageParam q{Float(16), 2, "q"}, k{Float(16), 2, "k"}, v{Float(16), 2, "v"};
  Var d{"d"}, j{"j"}, i{"i"};
  Func dot{"dot"}, score{"score"}, largest{"largest"}, power{"power"}, total{"total"}, weighted{"weighted"}, out{"out"};

  HalideDefinition define() {
    RDom e(0, depth, "e"), r(0, m, "r"), s(0, m, "s"), t(0, m, "t");
    for (RDom* seen : {&r, &s, &t}) seen->where(*seen <= i + m - n);
    dot(j, i) = 0.0f;
    dot(j, i) += cast<float>(q(e, i)) * cast<float>(k(e, j));
    score(j, i) = dot(j, i) * 0.125f;
    largest(i) = Float(32).min();
    largest(i) = max(largest(i), score(r, i));
    power(j, i) = exp(score(j, i) - largest(i));
    total(i) = 0.0f;
    total(i) += power(s, i);
    weighted(d, i) = 0.0f;
    weighted(d, i) += power(t, i) * cast<float>(v(d, t));
    out(d, i) = weighted(d, i) / total(i);
    return {.op = "attention",
            .variant = "test",
            .outputs = {{out, {depth, n}}},
            .sizes = {{n, 5}, {m, 7}, {depth, 4}},
            .require = {m >= n}};
  }
};

TEST(FrontendExtraction, MaskOfReductionReachesEveryProducer) {
  CausalAttention attention;
  const Nest nest = extract_nest(attention.define());
  const std::string p = "[n, m, depth] -> ";
  expect_domain(nest, "dot", p + "{ dot[i, j, e] : 0 <= i < n and 0 <= j <= i + m - n and 0 <= e < depth }");
  expect_domain(nest, "dot_init", p + "{ dot_init[i, j] : 0 <= i < n and 0 <= j <= i + m - n }");
  expect_domain(nest, "score", p + "{ score[i, j] : 0 <= i < n and 0 <= j <= i + m - n }");
  expect_domain(nest, "largest", p + "{ largest[i, r] : 0 <= i < n and 0 <= r <= i + m - n }");
  expect_domain(nest, "power", p + "{ power[i, j] : 0 <= i < n and 0 <= j <= i + m - n }");
  expect_domain(nest, "out", p + "{ out[i, d] : 0 <= i < n and 0 <= d < depth }");
  expect_access(nest.statement("dot").reads[0], nest.statement("dot"), p + "{ dot[i, j, e] -> q[i, e] }");
  expect_access(nest.statement("dot").reads[1], nest.statement("dot"), p + "{ dot[i, j, e] -> k[j, e] }");
  EXPECT_EQ(nest.statement("dot").reduction, nestor::ReductionOp::add);
  EXPECT_EQ(nest.statement("largest").reduction, nestor::ReductionOp::max);
  EXPECT_EQ(nest.statement("largest").reads.size(), 1U);
  EXPECT_FALSE(nest.statement("power").reduction.has_value());
  EXPECT_EQ(nest.tensor("q").type, nestor::ElementType::f16);
  EXPECT_EQ(nest.tensor("power").role, nestor::TensorRole::temporary);
  EXPECT_EQ(extent(nest, "power", 1, {{"n", 5}, {"m", 7}, {"depth", 4}}), 7);
  EXPECT_EQ(extent(nest, "k", 0, {{"n", 5}, {"m", 7}, {"depth", 4}}), 7);
}

TEST(FrontendExtraction, SixteenBitInputsAreWidenedWhenRead) {
  CausalAttention attention;
  const Nest nest = extract_nest(attention.define());
  const nestor::ScalarExpr value = nest.statement("dot").value;
  ASSERT_EQ(value.op(), nestor::ScalarOp::mul);
  EXPECT_EQ(value.args()[0].op(), nestor::ScalarOp::cast);
  EXPECT_EQ(value.args()[0].type(), nestor::ElementType::f32);
  EXPECT_EQ(value.args()[0].args()[0].op(), nestor::ScalarOp::read);
}

TEST(FrontendExtraction, DigestDoesNotDependOnHalidesCounters) {
  CausalAttention first;
  CausalAttention second;  // its Funcs are "dot$1" and so on inside Halide
  EXPECT_EQ(nestor::digest(extract_nest(first.define())), nestor::digest(extract_nest(second.define())));
}

TEST(FrontendExtraction, NestSurvivesJson) {
  CausalAttention attention;
  const Nest nest = extract_nest(attention.define());
  EXPECT_EQ(nestor::digest(nestor::nest_from_json(nestor::nest_to_json(nest))), nestor::digest(nest));
}

TEST(FrontendExtraction, SizesBecomeIndicesAndScalarsArguments) {
  Param<int> cols("cols"), rows("rows");
  Param<float> eps("eps");
  eps.set_range(0.25f, 8.0f);
  ImageParam x(Float(32), 2, "x");
  Var c("c"), i("i");
  RDom k(0, cols, "k");
  Func mean("mean"), out("out");
  mean(i) = 0.0f;
  mean(i) += x(k, i) / cast<float>(cols);
  out(c, i) = x(c, i) - mean(i) + eps + cast<float>(2 * c + i);
  const Nest nest = extract_nest({.op = "center",
                                  .variant = "f32",
                                  .outputs = {{out, {cols, rows}}},
                                  .sizes = {{rows, 8}, {.param = cols, .default_value = 16, .max = 64, .specialized = true}},
                                  .scalars = {{eps, 0.5}}});
  const Statement& mean_statement = nest.statement("mean");
  ASSERT_EQ(mean_statement.indices.size(), 1U);
  EXPECT_EQ(mean_statement.dims, (std::vector<std::string>{"i", "k"}));
  EXPECT_EQ(value_of(mean_statement), "(r0 / f32(i0))");
  ASSERT_EQ(nest.statement("out").indices.size(), 1U);
  EXPECT_TRUE(nest.statement("out").indices[0].as_map().is_equal(
      nestor::parse_map("[rows, cols] -> { out[i, c] -> [2c + i] }", "expected")));
  ASSERT_EQ(nest.scalars.size(), 1U);
  EXPECT_EQ(nest.scalars[0].name, "eps");
  EXPECT_EQ(nest.scalars[0].default_value, 0.5);
  EXPECT_EQ(nest.scalars[0].minimum, 0.25);
  EXPECT_EQ(nest.scalars[0].maximum, 8);
  ASSERT_EQ(nest.sizes.size(), 2U);
  EXPECT_TRUE(nest.sizes[1].specialized);
  EXPECT_EQ(nest.sizes[1].max, 64);
  EXPECT_EQ(nest.tensors.front().name, "x");
}

TEST(FrontendExtraction, SelectRestrictsWhatIsRead) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  Func padded("padded"), out("out");
  padded(i) = select(i >= 0 && i < n, x(i), 0.0f);
  out(i) = padded(i - 1) + padded(i + 1);
  const Nest nest = extract_nest({.op = "pad", .variant = "f32", .outputs = {{out, {n}}}, .sizes = {{n, 8}}, .scalars = {}});
  // Index -1 is moved to the origin; two more elements than x has.
  EXPECT_EQ(extent(nest, "padded", 0, {{"n", 8}}), 10);
  EXPECT_EQ(extent(nest, "x", 0, {{"n", 8}}), 8);
  expect_access(nest.statement("padded").write, nest.statement("padded"), "[n] -> { padded[i] -> padded[i + 1] }");
  expect_access(nest.statement("padded").reads[0], nest.statement("padded"), "[n] -> { padded[i] -> x[i] : 0 <= i < n }");
}

TEST(FrontendExtraction, ClampedIndicesArePiecewise) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  Func out("out");
  out(i) = x(clamp(i - 1, 0, n - 1)) + x(min(i / 2, n - 1)) + x(i % 3);
  const Nest nest = extract_nest(
      {.op = "clamp", .variant = "f32", .outputs = {{out, {n}}}, .inputs = {{x, {n}}}, .sizes = {{n, 8, 3}}, .scalars = {}});
  const Statement& statement = nest.statement("out");
  expect_access(statement.reads[0], statement, "[n] -> { out[i] -> x[i - 1] : i >= 1; out[i] -> x[0] : i < 1 }");
  expect_access(statement.reads[1], statement, "[n] -> { out[i] -> x[floor(i / 2)] }");
  expect_access(statement.reads[2], statement, "[n] -> { out[i] -> x[i mod 3] }");
}

TEST(FrontendExtraction, TimeStepsReadTheStepBefore) {
  Param<int> n("n"), steps("steps");
  ImageParam x(Float(32), 1, "x");
  Var i("i"), t("t");
  RDom r(1, n - 2, 1, steps, "r");
  Func f("f"), out("out");
  f(i, t) = x(i);
  f(r.x, r.y) = (f(r.x - 1, r.y - 1) + f(r.x, r.y - 1) + f(r.x + 1, r.y - 1)) / 3.0f;
  out(i) = f(i, steps);
  const Nest nest = extract_nest({.op = "heat",
                                  .variant = "f32",
                                  .outputs = {{out, {n}}},
                                  .sizes = {{.param = n, .default_value = 9, .min = 3}, {steps, 4}}});
  const Statement& step = nest.statement("f");
  EXPECT_EQ(step.dims, (std::vector<std::string>{"r_y", "r_x"}));
  EXPECT_FALSE(step.reduction.has_value());
  EXPECT_EQ(step.reads.size(), 3U);
  expect_domain(nest, "f", "[n, steps] -> { f[t, i] : 1 <= t <= steps and 1 <= i <= n - 2 }");
  expect_access(step.reads[0], step, "[n, steps] -> { f[t, i] -> f[t - 1, i - 1] }");
  EXPECT_EQ(extent(nest, "f", 0, {{"n", 9}, {"steps", 4}}), 5);
}

TEST(FrontendExtraction, OverwrittenInitialValuesAreDropped) {
  Param<int> n("n"), steps("steps");
  ImageParam x(Float(32), 1, "x");
  Var i("i"), t("t");
  RDom r(1, steps, "r");
  Func f("f"), out("out");
  f(i, t) = x(i);
  f(i, r) = f(i, r - 1) * 0.5f;
  out(i) = f(i, steps);
  const Nest nest =
      extract_nest({.op = "decay", .variant = "f32", .outputs = {{out, {n}}}, .sizes = {{n, 9}, {steps, 4}}, .scalars = {}});
  expect_domain(nest, "f_init", "[n, steps] -> { f_init[t, i] : t = 0 and 0 <= i < n }");
}

TEST(FrontendExtraction, OnlyWhatIsReadIsComputed) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  Func squares("squares"), out("out");
  squares(i) = x(i) * x(i);
  out(i) = squares(2 * i);
  const Nest nest = extract_nest({.op = "evens", .variant = "f32", .outputs = {{out, {n}}}, .sizes = {{n, 9}}, .scalars = {}});
  expect_domain(nest, "squares", "[n] -> { squares[i] : 0 <= i < 2n and i mod 2 = 0 }");
  EXPECT_EQ(nest.statement("squares").reads.size(), 1U);
}

TEST(FrontendExtraction, PartsOfATupleShareAGroup) {
  Param<int> n("n"), m("m");
  ImageParam x(Float(32), 2, "x");
  Var i("i");
  RDom r(0, n, "r");
  Func best("best"), out("out");
  best(i) = Tuple(Float(32).min(), 0);
  const Expr better = x(r, i) > best(i)[0];
  best(i) = Tuple(select(better, x(r, i), best(i)[0]), select(better, r, best(i)[1]));
  out(i) = best(i)[1];
  const Nest nest =
      extract_nest({.op = "argmax", .variant = "f32", .outputs = {{out, {m}}}, .sizes = {{n, 9}, {m, 3}}, .scalars = {}});
  const Statement& value = nest.statement("best_0");
  const Statement& position = nest.statement("best_1");
  EXPECT_EQ(value.group, position.group);
  EXPECT_EQ(value.dims, position.dims);
  EXPECT_EQ(nest.tensor("best_1").type, nestor::ElementType::i32);
  // The position compares with the old value: it must come first.
  EXPECT_LT(&position, &value);
}

TEST(FrontendExtraction, RecognisesHalidesExpansions) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  Func out("out");
  out(i) = erf(x(i) * 0.5f) + fast_exp(x(i)) + fast_log(x(i) + 1.0f) + fast_inverse(x(i)) + fast_inverse_sqrt(x(i)) +
           pow(2.0f, x(i)) + likely(tanh(x(i))) + strict_float(sqrt(x(i)));
  const Nest nest = extract_nest({.op = "maths", .variant = "f32", .outputs = {{out, {n}}}, .sizes = {{n, 9}}, .scalars = {}});
  std::map<nestor::ScalarOp, int> count;
  nest.statement("out").value.visit([&](const nestor::ScalarExpr& e) { ++count[e.op()]; });
  using nestor::ScalarOp;
  for (const ScalarOp op : {ScalarOp::erf, ScalarOp::exp, ScalarOp::log, ScalarOp::div, ScalarOp::rsqrt, ScalarOp::exp2,
                            ScalarOp::tanh, ScalarOp::sqrt}) {
    EXPECT_EQ(count[op], 1) << nestor::to_string(op);
  }
  EXPECT_EQ(count[ScalarOp::select], 0);
}

TEST(FrontendExtraction, EveryAccumulationIsAReduction) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  RDom r(0, n, "r");
  Func add("add"), subtract("subtract"), product("product"), smallest("smallest"), chain("chain"), out("out");
  add() = 0.0f;
  add() = x(r) + add();
  subtract() = 0.0f;
  subtract() -= x(r);
  product() = 1.0f;
  product() *= x(r);
  smallest() = Float(32).max();
  smallest() = min(x(r), smallest());
  chain() = 0.0f;
  chain() = chain() * 0.5f + x(r);
  out(i) = add() + subtract() + product() + smallest() + chain() + sum(r, x(r) * x(i)) + maximum(r, x(r));
  const Nest nest = extract_nest({.op = "sums", .variant = "f32", .outputs = {{out, {n}}}, .sizes = {{n, 9}}, .scalars = {}});
  using nestor::ReductionOp;
  EXPECT_EQ(nest.statement("add").reduction, ReductionOp::add);
  EXPECT_EQ(nest.statement("subtract").reduction, ReductionOp::add);
  EXPECT_EQ(value_of(nest.statement("subtract")), "-r0");
  EXPECT_EQ(nest.statement("product").reduction, ReductionOp::mul);
  EXPECT_EQ(nest.statement("smallest").reduction, ReductionOp::min);
  EXPECT_FALSE(nest.statement("chain").reduction.has_value());
  EXPECT_EQ(nest.statement("sum").reduction, ReductionOp::add);
  EXPECT_EQ(nest.statement("maximum").reduction, ReductionOp::max);
}

TEST(FrontendExtraction, SelectOfTheOldValueNarrowsTheDomain) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  RDom r(0, n, "r");
  Func prefix("prefix");
  prefix(i) = 0.0f;
  prefix(i) = select(r <= i, prefix(i) + x(r), prefix(i));
  const Nest nest =
      extract_nest({.op = "prefix", .variant = "f32", .outputs = {{prefix, {n}}}, .sizes = {{n, 9}}, .scalars = {}});
  expect_domain(nest, "prefix", "[n] -> { prefix[i, r] : 0 <= i < n and 0 <= r <= i }");
  EXPECT_EQ(nest.statement("prefix").reduction, nestor::ReductionOp::add);
}

TEST(FrontendExtraction, SeveralOutputs) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  Func twice("twice"), shifted("shifted");
  twice(i) = x(i) * 2.0f;
  shifted(i) = cast<float16_t>(twice(i) + 1.0f);
  const Nest nest =
      extract_nest({.op = "pair", .variant = "f32", .outputs = {{shifted, {n}}, {twice, {n}}}, .sizes = {{n, 9}}, .scalars = {}});
  EXPECT_EQ(nest.tensor("twice").role, nestor::TensorRole::output);
  EXPECT_EQ(nest.tensor("shifted").role, nestor::TensorRole::output);
  EXPECT_EQ(nest.tensor("shifted").type, nestor::ElementType::f16);
  EXPECT_EQ(nest.statement("shifted").value.type(), nestor::ElementType::f16);
}

TEST(FrontendExtraction, DeclaredExtentsMayBeMentioned) {
  Param<int> n("n");
  ImageParam x(Float(32), 1, "x");
  Var i("i");
  RDom r(0, x.dim(0).extent(), "r");
  Func out("out");
  out(i) = 0.0f;
  out(i) += x(r);
  const Nest nest = extract_nest(
      {.op = "extent", .variant = "f32", .outputs = {{out, {n}}}, .inputs = {{x, {2 * n}}}, .sizes = {{n, 9}}, .scalars = {}});
  expect_domain(nest, "out", "[n] -> { out[i, r] : 0 <= i < n and 0 <= r < 2n }");
}

}  // namespace
