// Every operation, cast and reduction means the same of infinities, NaN, zeros, subnormal and huge numbers and wrapping integers
// wherever it is computed (docs/values.md): evaluator, oracle, tile program, host code of three widths, emulated GPU code.
#include "support/nests/nest_runs.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <cmath>

namespace nestor::testing {
namespace {

using samples::NestBuilder;
using samples::number;
using samples::read;

const double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<double>& floats() {
  static const std::vector<double> values = [] {
    std::vector<double> all{0.0, -0.0, kInf, -kInf, kNaN, std::copysign(kNaN, -1.0)};
    for (const double magnitude :
         {0x1p-149,     1e-40,        0x1p-126, 1e-30,   1e-8,
          0.25,         0.5,          1.0,      1.5,     2.0,
          3.0,          10.0,         87.0,     90.0,    125.5,
          129.0,        1e4,          65519.0,  65520.0, 16777216.0,
          2147483520.0, 2147483648.0, 1e30,     2e38,    static_cast<double>(std::numeric_limits<float>::max())}) {
      all.push_back(static_cast<float>(magnitude));
      all.push_back(-static_cast<float>(magnitude));
    }
    all.push_back(127.5);
    return all;
  }();
  return values;
}

const std::vector<double>& integers() {
  static const std::vector<double> values{
      0, 1, -1, 2, -2, 3, 7, -7, 31, 32, 33, 255, 65535, 65536, 65537, 46341, 1431655765, 2147483647, -2147483647, -2147483648.0};
  return values;
}

std::vector<std::pair<const char*, HostTarget>> host_targets() {
  return {{"host", detect_host()}, {"host with SSE4", {"x86-64-v2", "", 16, 16}}};
}

/// Same masks of NaN and infinities, and finite values within `tolerance`; what is below f32's normal numbers counts as 0.
bool agree(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (got == want) return true;
  const double room = tolerance * std::fabs(want);
  // Next to the end of the range, rounding decides.
  if (std::isinf(got) != std::isinf(want))
    return (got > 0) == (want > 0) && std::min(std::fabs(got), std::fabs(want)) * (1 + tolerance) >= semantics::kOverflow;
  return std::fabs(got - want) <= room + (tolerance > 0 ? 0x1p-126 : 0);
}

void expect_agreement(const Results& got, const Results& want, double tolerance, const std::string& what) {
  for (const auto& [name, values] : want) {
    ASSERT_EQ(got.at(name).size(), values.size()) << what;
    int wrong = 0;
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (agree(got.at(name)[k], values[k], tolerance)) continue;
      if (++wrong <= 4) ADD_FAILURE() << what << ": " << name << "[" << k << "] is " << got.at(name)[k] << ", not " << values[k];
    }
    EXPECT_EQ(wrong, 0) << what << ", " << name;
  }
}

/// All that runs a tile program against `want`.
void expect_code_agrees(const TileProgram& program, const NestInputs& inputs, const Results& want, double tolerance,
                        const std::string& what) {
  expect_agreement(run_program(program, inputs), want, tolerance, what + ", tile program");
  for (const auto& [name, target] : host_targets())
    expect_agreement(run_host(program, inputs, target), want, tolerance, what + ", " + name);
  expect_agreement(run_emulated(program, inputs), want, tolerance, what + ", emulated PTX");
}

void expect_same_everywhere(const Nest& nest, const NestInputs& inputs, const Results& want, double tolerance,
                            const std::string& what) {
  for (const bool backwards : {false, true})
    expect_agreement(run_oracle(nest, inputs, backwards), want, tolerance,
                     what + (backwards ? ", oracle backwards" : ", oracle"));
  expect_code_agrees(build_tile_program(Schedule(nest)), inputs, want, tolerance, what);
}

ScalarExpr as_number(const ScalarExpr& value) {
  if (value.type() != ElementType::boolean) return value;
  return ScalarExpr::make(ScalarOp::select, {value, number(1), number(0)});
}

double evaluate_at(const ScalarExpr& value, double a, double b) {
  return evaluate(
      value, [&](int k) { return k == 0 ? a : b; }, [](int) -> std::int64_t { return 0; },
      [](const std::string&) { return 0.0; });
}

/// out[i, j] = value(x[i], y[j]) for all pairs.
void expect_operation(const std::string& what, const ScalarExpr& value, ElementType type, const std::vector<double>& x,
                      const std::vector<double>& y, double tolerance) {
  const Nest nest = NestBuilder("pairs", {{"N", 3}, {"M", 3}})
                        .tensor("x", TensorRole::input, {"N"}, type)
                        .tensor("y", TensorRole::input, {"M"}, type)
                        .tensor("out", TensorRole::output, {"N", "M"}, value.type())
                        .statement("S[i, j] : 0 <= i < N and 0 <= j < M", "out[i, j]", {"x[i]", "y[j]"}, value)
                        .build();
  const NestInputs inputs{
      {{"N", static_cast<std::int64_t>(x.size())}, {"M", static_cast<std::int64_t>(y.size())}}, {{"x", x}, {"y", y}}, {}};
  Results want;
  for (const double a : x) {
    for (const double b : y)
      want["out"].push_back(round_to(value.type(), evaluate_at(value, round_to(type, a), round_to(type, b))));
  }
  expect_same_everywhere(nest, inputs, want, tolerance, what);
}

struct Operation {
  ScalarOp op;
  double tolerance;
};

TEST(SpecialValues, FloatOperationsOfTwo) {
  for (const Operation& o : {Operation{ScalarOp::add, 1e-6},
                             {ScalarOp::sub, 1e-6},
                             {ScalarOp::mul, 1e-6},
                             {ScalarOp::div, 1e-6},
                             {ScalarOp::min, 0},
                             {ScalarOp::max, 0},
                             {ScalarOp::pow, 2e-4},
                             {ScalarOp::lt, 0},
                             {ScalarOp::le, 0},
                             {ScalarOp::eq, 0}}) {
    const ScalarExpr value = as_number(ScalarExpr::make(o.op, {read(0), read(1)}));
    expect_operation(std::string(to_string(o.op)), value, ElementType::f32, floats(), floats(), o.tolerance);
  }
}

TEST(SpecialValues, FloatFunctions) {
  for (const Operation& o : {Operation{ScalarOp::neg, 0},
                             {ScalarOp::abs, 0},
                             {ScalarOp::exp, 1e-5},
                             {ScalarOp::exp2, 1e-5},
                             {ScalarOp::log, 1e-6},
                             {ScalarOp::sqrt, 1e-6},
                             {ScalarOp::rsqrt, 1e-6},
                             {ScalarOp::tanh, 1e-6},
                             {ScalarOp::erf, 1e-6},
                             {ScalarOp::sin, 1e-6},
                             {ScalarOp::cos, 1e-6},
                             {ScalarOp::log1p, 1e-6},
                             {ScalarOp::expm1, 1e-6},
                             {ScalarOp::atan, 1e-6},
                             {ScalarOp::floor, 0}}) {
    const ScalarExpr value = ScalarExpr::make(o.op, {read(0)});
    // The second column depends on the sign of zeros.
    const ScalarExpr result = ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::eq, {read(1), number(0)}), value,
                                                                  ScalarExpr::make(ScalarOp::div, {read(1), value})});
    expect_operation(std::string(to_string(o.op)), result, ElementType::f32, floats(), {0, 1}, 10 * o.tolerance);
  }
}

/// Kernels that have a 16-bit argument take the fast instructions of a GPU.
TEST(SpecialValues, FunctionsOf16BitKernels) {
  std::vector<double> narrow;
  for (const double value : floats()) narrow.push_back(round_to(ElementType::bf16, value));
  for (const ScalarOp op : {ScalarOp::exp, ScalarOp::exp2, ScalarOp::log, ScalarOp::sqrt, ScalarOp::rsqrt, ScalarOp::tanh,
                            ScalarOp::erf, ScalarOp::sin, ScalarOp::cos, ScalarOp::log1p, ScalarOp::expm1, ScalarOp::atan,
                            ScalarOp::floor, ScalarOp::div, ScalarOp::pow, ScalarOp::max, ScalarOp::min}) {
    std::vector<ScalarExpr> args{ScalarExpr::cast(ElementType::f32, read(0, ElementType::bf16))};
    if (arity(op) == 2) args.push_back(ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16)));
    expect_operation(fmt::format("{} of bf16", to_string(op)), ScalarExpr::make(op, args), ElementType::bf16, narrow, narrow,
                     1e-3);
  }
}

TEST(SpecialValues, IntegerOperations) {
  const auto number32 = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  const ScalarExpr a = read(0, ElementType::i32), b = read(1, ElementType::i32);
  for (const ScalarOp op :
       {ScalarOp::add, ScalarOp::sub, ScalarOp::mul, ScalarOp::div, ScalarOp::min, ScalarOp::max, ScalarOp::lt, ScalarOp::le,
        ScalarOp::eq, ScalarOp::bit_and, ScalarOp::bit_or, ScalarOp::bit_xor, ScalarOp::shift_left, ScalarOp::shift_right_logical,
        ScalarOp::mul_high_unsigned, ScalarOp::neg, ScalarOp::abs, ScalarOp::floor}) {
    ScalarExpr value = arity(op) == 1 ? ScalarExpr::make(op, {a}) : ScalarExpr::make(op, {a, b});
    if (value.type() == ElementType::boolean) value = ScalarExpr::make(ScalarOp::select, {value, number32(1), number32(0)});
    expect_operation(fmt::format("{} of i32", to_string(op)), value, ElementType::i32, integers(), integers(), 0);
  }
}

TEST(SpecialValues, Logic) {
  const auto positive = [](int k) { return ScalarExpr::make(ScalarOp::lt, {number(0), read(k)}); };
  for (const ScalarOp op : {ScalarOp::logical_and, ScalarOp::logical_or, ScalarOp::logical_not}) {
    const ScalarExpr value =
        op == ScalarOp::logical_not ? ScalarExpr::make(op, {positive(0)}) : ScalarExpr::make(op, {positive(0), positive(1)});
    expect_operation(std::string(to_string(op)), as_number(value), ElementType::f32, floats(), floats(), 0);
  }
  const ScalarExpr chosen =
      ScalarExpr::make(ScalarOp::select, {positive(0), read(0), ScalarExpr::make(ScalarOp::mul, {read(0), read(1)})});
  expect_operation("select", chosen, ElementType::f32, floats(), floats(), 1e-6);
}

TEST(SpecialValues, Casts) {
  const ElementType types[] = {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i32};
  for (const ElementType from : types) {
    std::vector<double> values;
    for (const double value : from == ElementType::i32 ? integers() : floats()) values.push_back(round_to(from, value));
    for (const ElementType to : types) {
      expect_operation(fmt::format("{} to {}", to_string(from), to_string(to)), ScalarExpr::cast(to, read(0, from)), from, values,
                       values, 0);
    }
    if (size_in_bytes(from) == 2) continue;
    expect_operation(fmt::format("{} to bool", to_string(from)), as_number(ScalarExpr::cast(ElementType::boolean, read(0, from))),
                     from, values, values, 0);
  }
  const ScalarExpr negative = ScalarExpr::make(ScalarOp::lt, {read(0), read(1)});
  for (const ElementType to : types)
    expect_operation(fmt::format("bool to {}", to_string(to)), ScalarExpr::cast(to, negative), ElementType::f32, floats(),
                     floats(), 0);
}

/// Inputs of truth values and of i64, numbers beyond 32 bits among them, and outputs of truth values.
TEST(SpecialValues, TruthValuesAndWideIntegers) {
  const ScalarExpr flag = read(0, ElementType::boolean), other = read(1, ElementType::boolean);
  const std::vector<double> flags{0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 1};
  for (const ElementType to : {ElementType::f32, ElementType::bf16, ElementType::i32, ElementType::boolean})
    expect_operation(fmt::format("bool in memory to {}", to_string(to)), ScalarExpr::cast(to, flag), ElementType::boolean, flags,
                     flags, 0);
  expect_operation("a choice by bool", ScalarExpr::make(ScalarOp::select, {flag, number(kNaN), number(-kInf)}),
                   ElementType::boolean, flags, flags, 0);
  for (const ScalarOp op : {ScalarOp::logical_and, ScalarOp::logical_or})
    expect_operation(std::string(to_string(op)), ScalarExpr::make(op, {flag, ScalarExpr::make(ScalarOp::logical_not, {other})}),
                     ElementType::boolean, flags, flags, 0);
  for (const ScalarOp op : {ScalarOp::lt, ScalarOp::le, ScalarOp::eq})
    expect_operation(fmt::format("{} stored as bool", to_string(op)), ScalarExpr::make(op, {read(0), read(1)}), ElementType::f32,
                     floats(), floats(), 0);
  std::vector<double> wide = integers();
  for (const double value : {0x1p31, 0x1p31 + 1, -0x1p31 - 1, 0x1p32, 0x1p40, -0x1p40, 0x1p62, -0x1p63}) wide.push_back(value);
  const ScalarExpr a = ScalarExpr::cast(ElementType::i32, read(0, ElementType::i64)),
                   b = ScalarExpr::cast(ElementType::i32, read(1, ElementType::i64));
  for (const ElementType to : {ElementType::f32, ElementType::f16, ElementType::i32, ElementType::boolean})
    expect_operation(fmt::format("i64 to {}", to_string(to)), ScalarExpr::cast(to, a), ElementType::i64, wide, wide, 0);
  for (const ScalarOp op : {ScalarOp::lt, ScalarOp::eq, ScalarOp::add, ScalarOp::max})
    expect_operation(fmt::format("{} of i64", to_string(op)), ScalarExpr::make(op, {a, b}), ElementType::i64, wide, wide, 0);
}

/// Which special values a nest can take: sums of huge ones overflow in one order and not in another, and close ones cancel.
enum class Magnitudes { all, small };

/// Rows of `width` values: for each special value a row of it alone, one with it at some place among ordinary values, one with another
/// special value beside it.
std::vector<double> special_rows(ElementType type, std::int64_t width, Magnitudes magnitudes) {
  std::mt19937 random(5);
  std::vector<double> special, all;
  for (const double value : type == ElementType::i32 ? integers() : floats()) {
    if (magnitudes == Magnitudes::all || !std::isfinite(value) || std::fabs(value) < 1e4) special.push_back(value);
  }
  const auto ordinary = [&] { return round_to(type, std::uniform_real_distribution<double>(-2, 2)(random)); };
  for (const double value : special) {
    for (int count = 0; count < 3; ++count) {
      const std::size_t first = all.size();
      for (std::int64_t k = 0; k < width; ++k) all.push_back(count == 0 ? value : ordinary());
      const auto place = [&] { return first + random() % static_cast<std::size_t>(width); };
      if (count > 0) all[place()] = value;
      if (count > 1) all[place()] = special[random() % special.size()];
    }
  }
  return all;
}

/// No steps; any order of reductions; besides, a block for every row; and all statements in one loop over rows, where they have a common
/// one.
std::vector<Schedule> simple_schedules(const Nest& nest) {
  std::vector<Schedule> schedules{Schedule(nest)};
  const auto add = [&](const std::vector<std::string>& steps) {
    Schedule schedule(nest);
    for (const std::string& step : steps) schedule = schedule.apply(parse_step(step));
    schedules.push_back(schedule);
  };
  std::vector<std::string> blocks{"apply_rule(reassociate)"}, fused = blocks;
  for (const Statement& statement : nest.statements) blocks.push_back(fmt::format("gpu_blocks({}.i)", statement.name));
  add(blocks);
  for (std::size_t k = nest.statements.size() - 1; k-- > 0;)
    fused.push_back(fmt::format("fuse_with({}.i, {}.i)", nest.statements[k].name, nest.statements.back().name));
  fused.push_back(fmt::format("gpu_blocks({}.i)", nest.statements.back().name));
  add(fused);
  return schedules;
}

/// A nest that reads x[N, W], on rows of special values.
void expect_rows(const Nest& nest, std::int64_t width, double tolerance, Magnitudes magnitudes = Magnitudes::all) {
  NestInputs inputs;
  inputs.tensors["x"] = special_rows(nest.tensor("x").type, width, magnitudes);
  inputs.sizes = {{"N", static_cast<std::int64_t>(inputs.tensors["x"].size()) / width}, {"W", width}};
  const std::string what = fmt::format("{} of rows of {}", nest.op, width);
  const Results want = run_definition(nest, inputs);
  for (const bool backwards : {false, true})
    expect_agreement(run_oracle(nest, inputs, backwards), want, tolerance,
                     what + (backwards ? ", oracle backwards" : ", oracle"));
  int number = 0;
  for (const Schedule& schedule : simple_schedules(nest))
    expect_code_agrees(build_tile_program(schedule), inputs, want, tolerance, fmt::format("{}, schedule {}", what, number++));
}

/// Sizes N and W, the input x[N, W], and rows of results.
NestBuilder rows_of(const std::string& name, ElementType type = ElementType::f32) {
  NestBuilder nest(name, {{"N", 3}, {"W", 3}});
  nest.tensor("x", TensorRole::input, {"N", "W"}, type);
  return nest;
}
const std::string kRow = " : 0 <= i < N", kPoint = " : 0 <= i < N and 0 <= k < W";

/// name[i] = reduction of value over x[i, k], which is read 0, and t[i], which is read 1.
void add_reduction(NestBuilder& nest, const std::string& name, TensorRole role, ReductionOp op, const ScalarExpr& value,
                   const std::string& other = "", const std::vector<std::string>& indices = {}) {
  std::vector<std::string> reads{"x[i, k]"};
  if (!other.empty()) reads.push_back(other + "[i]");
  const ElementType type = value.type();
  nest.tensor(name, role, {"N"}, type)
      .statement(name + "_init[i]" + kRow, name + "[i]", {}, ScalarExpr::constant(neutral_element(op, type), type))
      .statement(name + "_update[i, k]" + kPoint, name + "[i]", reads, value, op, indices);
}

TEST(SpecialValues, Reductions) {
  for (const ElementType type : {ElementType::f32, ElementType::i32}) {
    for (const ReductionOp op : {ReductionOp::add, ReductionOp::mul, ReductionOp::min, ReductionOp::max}) {
      NestBuilder nest = rows_of(fmt::format("{} of {}", to_string(op), to_string(type)), type);
      add_reduction(nest, "r", TensorRole::output, op, read(0, type));
      const bool floating = type == ElementType::f32;
      const Magnitudes magnitudes = floating && op == ReductionOp::add ? Magnitudes::small : Magnitudes::all;
      for (const std::int64_t width : {2, 37}) {
        if (floating && op == ReductionOp::mul && width > 2) continue;  // in another order, another factor overflows
        expect_rows(nest.build(), width, floating ? 2e-3 : 0, magnitudes);
      }
    }
  }
}

TEST(SpecialValues, ReductionsOfNothing) {
  for (const ReductionOp op : {ReductionOp::add, ReductionOp::mul, ReductionOp::min, ReductionOp::max}) {
    const Nest nest = NestBuilder("nothing", {{"N", 3}})
                          .tensor("x", TensorRole::input, {"N"})
                          .tensor("r", TensorRole::output, {"N"})
                          .statement("init[i] : 0 <= i < N", "r[i]", {}, number(neutral_element(op, ElementType::f32)))
                          .statement("update[i, k] : 0 <= i < N and 0 <= k < i", "r[i]", {"x[k]"}, read(0), op)
                          .build();
    const NestInputs inputs{{{"N", 2}}, {{"x", {2, kNaN}}}, {}};
    const Results want = run_definition(nest, inputs);
    EXPECT_EQ(want.at("r"), (std::vector<double>{neutral_element(op, ElementType::f32), 2}));
    expect_same_everywhere(nest, inputs, want, 0, fmt::format("{} of nothing", to_string(op)));
  }
}

TEST(SpecialValues, Softmax) {
  NestBuilder nest = rows_of("softmax");
  add_reduction(nest, "m", TensorRole::temporary, ReductionOp::max, read(0));
  const ScalarExpr term = samples::apply(ScalarOp::exp, samples::operator-(read(0), read(1)));
  add_reduction(nest, "l", TensorRole::temporary, ReductionOp::add, term, "m");
  nest.tensor("out", TensorRole::output, {"N", "W"})
      .tensor("lse", TensorRole::output, {"N"})
      .statement("out[i, k]" + kPoint, "out[i, k]", {"x[i, k]", "m[i]", "l[i]"}, samples::operator/(term, read(2)))
      .statement("lse[i]" + kRow, "lse[i]", {"m[i]", "l[i]"},
                 samples::operator+(read(0), samples::apply(ScalarOp::log, read(1))));
  for (const std::int64_t width : {1, 37}) expect_rows(nest.build(), width, 1e-4);
}

TEST(SpecialValues, ExtremaAndTheirPlaces) {
  NestBuilder nest = rows_of("places");
  add_reduction(nest, "largest", TensorRole::output, ReductionOp::max, read(0));
  add_reduction(nest, "least", TensorRole::output, ReductionOp::min, read(0));
  const ScalarExpr hit = ScalarExpr::make(ScalarOp::eq, {read(0), read(1)});
  const ScalarExpr place =
      ScalarExpr::make(ScalarOp::select, {hit, ScalarExpr::index(0), ScalarExpr::constant(2147483647.0, ElementType::i32)});
  add_reduction(nest, "first_largest", TensorRole::output, ReductionOp::min, place, "largest", {"k"});
  add_reduction(nest, "first_least", TensorRole::output, ReductionOp::min, place, "least", {"k"});
  expect_rows(nest.build(), 37, 0);
}

TEST(SpecialValues, Norms) {
  NestBuilder nest = rows_of("norms");
  add_reduction(nest, "squares", TensorRole::temporary, ReductionOp::add, samples::operator*(read(0), read(0)));
  add_reduction(nest, "largest", TensorRole::output, ReductionOp::max, samples::apply(ScalarOp::abs, read(0)));
  nest.tensor("norm", TensorRole::output, {"N"})
      .tensor("out", TensorRole::output, {"N", "W"})
      .statement("norm[i]" + kRow, "norm[i]", {"squares[i]"}, samples::apply(ScalarOp::sqrt, read(0)))
      .statement("out[i, k]" + kPoint, "out[i, k]", {"x[i, k]", "squares[i]"},
                 samples::operator*(read(0), samples::apply(ScalarOp::rsqrt, samples::operator+(read(1), number(1e-5)))));
  expect_rows(nest.build(), 37, 1e-4);
}

TEST(SpecialValues, RunningSumsAndMaxima) {
  NestBuilder nest = rows_of("running");
  for (const auto& [name, op] : {std::pair("sum", ReductionOp::add), std::pair("peak", ReductionOp::max)}) {
    const std::string element = std::string(name) + "[i, k]";
    nest.tensor(name, TensorRole::output, {"N", "W"})
        .statement(std::string(name) + "_init[i, k]" + kPoint, element, {}, number(neutral_element(op, ElementType::f32)))
        .statement(std::string(name) + "_update[i, k, j]" + kPoint + " and 0 <= j <= k", element, {"x[i, j]"}, read(0), op);
  }
  expect_rows(nest.build(), 19, 2e-3, Magnitudes::small);
}

}  // namespace
}  // namespace nestor::testing
