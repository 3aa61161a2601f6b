// The values of extracted nests, run instance by instance, against Halide's own results.
#include <gtest/gtest.h>

#include "frontend/halide_frontend.h"
#include "unit/frontend/frontend_halide_run.h"

namespace {

using namespace Halide;
using nestor::extract_nest;
using nestor::HalideDefinition;
using nestor::Nest;

void expect_same(const HalideDefinition& definition, const nestor::Sizes& sizes, double tolerance,
                 const std::map<std::string, double>& scalars = {}) {
  const Nest nest = extract_nest(definition);
  const auto inputs = nestor::testing::make_inputs(nest, sizes);
  nestor::testing::Interpreter interpreter(nest, sizes, scalars, inputs);
  const auto& found = interpreter.run();
  const auto expected = nestor::testing::HalideRun(definition)(nest, sizes, scalars, inputs);
  for (const auto& [name, tensor] : expected) {
    EXPECT_LE(nestor::testing::distance(found.at(name), tensor), tolerance) << name << "\n" << nestor::describe(nest);
  }
}

Expr word_constant(std::uint32_t value) { return Internal::make_const(UInt(32), static_cast<std::int64_t>(value)); }

struct Line {
  Param<int> n{"n"};
  ImageParam x{Float(32), 1, "x"};
  ImageParam w{Int(32), 1, "w"};
  Var i{"i"};
  HalideDefinition define(const std::vector<Func>& outputs) const {
    HalideDefinition definition{.op = "line", .variant = "test", .inputs = {{x, {n}}, {w, {n}}}, .sizes = {{n, 13}}};
    for (const Func& f : outputs) definition.outputs.push_back({f, {n}});
    return definition;
  }
};

TEST(FrontendValues, RotatingTupleNeedsASnapshot) {
  Line line;
  RDom r(0, line.n, "r");
  Func pair("pair"), a("a"), b("b");
  pair(line.i) = Tuple(line.x(line.i), cast<float>(line.i));
  pair(line.i) = Tuple(pair(line.i)[1] + line.x(r), pair(line.i)[0] * 0.5f);
  a(line.i) = pair(line.i)[0];
  b(line.i) = pair(line.i)[1];
  const HalideDefinition definition = line.define({a, b});
  const Nest nest = extract_nest(definition);
  EXPECT_NE(nest.find_tensor("pair_0_old"), nullptr);
  expect_same(definition, {{"n", 13}}, 1e-5);
}

TEST(FrontendValues, ArgmaxAndInlineReductions) {
  Line line;
  RDom r(0, line.n, "r");
  Func position("position"), value("value"), total("total");
  const Tuple best = argmax(r, line.x(r) * cast<float>(line.i - 3));
  position(line.i) = best[0];
  value(line.i) = best[1];
  total(line.i) = sum(r, line.x(r)) + product(r, line.x(r) * 0.9f) + minimum(r, line.x(r) + line.x(line.i));
  expect_same(line.define({position, value, total}), {{"n", 13}}, 1e-5);
}

TEST(FrontendValues, BitOperations) {
  Line line;
  Func hashed("hashed"), uniform("uniform"), shifted("shifted"), wrapped("wrapped");
  const Expr word = cast<uint32_t>(line.w(line.i)) * word_constant(0x9E3779B9) + cast<uint32_t>(line.i);
  const Expr high = cast<uint32_t>((cast<uint64_t>(word) * cast<uint64_t>(word_constant(0xD2511F53))) >> 32);
  hashed(line.i) = cast<int>((high ^ (word << 7)) | (word >> 3));
  uniform(line.i) = cast<float>(high >> 8) * (1.0f / 16777216.0f) + cast<float>(word) * 1e-9f;
  shifted(line.i) = (line.w(line.i) >> 2) + (line.w(line.i) & 5) + (~line.w(line.i)) * 3 + (line.w(line.i) / 3) +
                    (line.w(line.i) % 5) + (line.w(line.i) % 4);
  wrapped(line.i) = select(word < word_constant(0x80000000), 1, 0) + select(min(word, high) == word, 2, 0);
  expect_same(line.define({hashed, uniform, shifted, wrapped}), {{"n", 13}}, 1e-6);
}

TEST(FrontendValues, FunctionsAndConversions) {
  Line line;
  Func out("out"), whole("whole"), mask("mask"), masked("masked");
  const Expr x = line.x(line.i);
  out(line.i) = exp(x) + log(abs(x) + 1.0f) + pow(abs(x) + 0.5f, 1.7f) + tanh(x) + erf(x) + floor(x) + ceil(x) + trunc(x * 3.0f) +
                sqrt(abs(x)) + lerp(x, 2.0f, 0.25f) + x % 0.75f + select(is_nan(x), 1.0f, 0.0f) - max(x, 0.3f) + absd(x, 1.0f);
  whole(line.i) = cast<int>(x * 3.3f) + abs(line.w(line.i)) + cast<int>(line.i % 3 == 1) + clamp(line.w(line.i), -3, 3);
  mask(line.i) = x > 0.25f && !(line.w(line.i) >= 4 || line.i != 2);
  masked(line.i) = select(mask(line.i), x, -x) + select(line.i < 4 && x < 1.0f, 10.0f, 20.0f);
  expect_same(line.define({out, whole, mask, masked}), {{"n", 13}}, 1e-5);
}

TEST(FrontendValues, SixteenBitArithmeticIsRoundedAtEveryStep) {
  Param<int> n("n");
  Var i("i");
  RDom r(0, n, "r");
  for (const Type type : {Float(16), BFloat(16)}) {
    ImageParam x(type, 1, "x");
    Func scaled("scaled"), total("total");
    scaled(i) = x(i) * cast(type, 1.1f) + x(i) * x(i);
    total(i) = cast(type, 0.0f);
    total(i) += scaled(r) * cast(type, i);
    HalideDefinition definition{
        .op = "narrow", .variant = "test", .outputs = {{scaled, {n}}, {total, {n}}}, .inputs = {{x, {n}}}, .sizes = {{n, 7}}};
    EXPECT_FALSE(extract_nest(definition).statement("total").reduction.has_value());
    // Halide lets LLVM keep excess precision within an expression.
    expect_same(definition, {{"n", 7}}, type.is_bfloat() ? 1.6e-2 : 2e-3);
  }
}

TEST(FrontendValues, ScalarArgumentsAndUndefinedStarts) {
  Line line;
  Param<float> scale("scale");
  Param<int> offset("offset");
  RDom inner(1, line.n - 2, "inner");
  Func out("out");
  out(line.i) = undef<float>();
  out(0) = -1.0f;
  out(line.n - 1) = -2.0f;
  out(inner) = line.x(inner) * scale + cast<float>(offset);
  HalideDefinition definition = line.define({out});
  definition.sizes = {{.param = line.n, .default_value = 13, .min = 3}};
  definition.scalars = {{scale, 2}, {offset, 3}};
  expect_same(definition, {{"n", 13}}, 1e-6, {{"scale", 1.5}, {"offset", -4}});
}

TEST(FrontendValues, InPlaceUpdatesKeepHalidesOrder) {
  Param<int> n("n"), m("m");
  ImageParam x(Float(32), 2, "x");
  Var i("i"), j("j");
  RDom r(1, n - 1, 1, m - 1, "r");
  Func f("f");
  f(i, j) = x(i, j);
  f(r.x, r.y) = 0.5f * f(r.x - 1, r.y) + 0.25f * f(r.x, r.y - 1) + 0.125f * f(r.x, r.y);
  HalideDefinition definition{.op = "sweep",
                              .variant = "test",
                              .outputs = {{f, {n, m}}},
                              .inputs = {{x, {n, m}}},
                              .sizes = {{.param = n, .default_value = 6, .min = 2}, {.param = m, .default_value = 5, .min = 2}}};
  expect_same(definition, {{"n", 6}, {"m", 5}}, 1e-6);
}

TEST(FrontendValues, NegativeIndicesOfTemporaries) {
  Line line;
  Func padded("padded"), blurred("blurred");
  padded(line.i) = select(line.i < 0 || line.i >= line.n, 7.0f, line.x(clamp(line.i, 0, line.n - 1)));
  blurred(line.i) = padded(line.i - 2) + padded(line.i) * 2.0f + padded(line.i + 2);
  expect_same(line.define({blurred}), {{"n", 13}}, 1e-6);
}

}  // namespace
