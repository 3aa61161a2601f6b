// copy, map, points: host code means what the interpreter says, for every tail, guard, stride and element type.
#include "codegen/gpu/backend.h"
#include "unit/codegen/codegen_host_fixture.h"

namespace nestor::host_test {
namespace {

const IntExpr i = var("i"), j = var("j"), N = var("N"), M = var("M");

/// out[i, j] = f(in[i, j]) over an M x N box.
TileProgram elementwise(const ScalarExpr& value, ElementType in = ElementType::f32, ElementType out = ElementType::f32) {
  return program({"M", "N"}, {argument("in", TensorRole::input, {M, N}, in), argument("out", TensorRole::output, {M, N}, out)},
                 node(make(OpKind::map, {dim("i", M), dim("j", N)}, {1, {i, j}}, {{0, {i, j}}}, value)));
}

TEST(HostMap, EveryTailLength) {
  const TileProgram p = elementwise(op(ScalarOp::add, {op(ScalarOp::mul, {read(0), f32(3)}), f32(1)}));
  for (const std::int64_t n : {1, 2, 7, 8, 9, 15, 31, 32, 33, 63, 65, 100}) expect_right(p, {{"M", 3}, {"N", n}});
}

TEST(HostMap, ConstantExtents) {
  for (const std::int64_t n : {1, 3, 4, 6, 16, 40}) {
    TileProgram p = elementwise(op(ScalarOp::neg, {read(0)}));
    p.fixed_sizes["N"] = n;
    TileNode changed = *p.root;
    changed.op.dims[1] = dim("j", n);
    p.root = std::make_shared<const TileNode>(changed);
    expect_right(p, {{"M", 5}, {"N", n}});
  }
}

TEST(HostMap, RequestedWidths) {
  for (const std::int64_t width : {2, 4, 16, 64}) {
    TileProgram p = elementwise(op(ScalarOp::add, {read(0), f32(1)}));
    TileNode changed = *p.root;
    changed.op.dims[1].kind = LoopKind::vectorize;
    changed.op.dims[1].factor = width;
    p.root = std::make_shared<const TileNode>(changed);
    expect_right(p, {{"M", 2}, {"N", 101}});
  }
}

TEST(HostMap, ElementTypes) {
  const ElementType types[] = {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i32};
  for (const ElementType in : types) {
    for (const ElementType out : types) {
      const ScalarExpr wide =
          in == ElementType::f32 ? ScalarExpr::read(0, in) : ScalarExpr::cast(ElementType::f32, ScalarExpr::read(0, in));
      const ScalarExpr value = op(ScalarOp::mul, {wide, f32(1.25)});
      SCOPED_TRACE(std::string(to_string(in)) + " to " + std::string(to_string(out)));
      expect_right(elementwise(out == ElementType::f32 ? value : ScalarExpr::cast(out, value), in, out), {{"M", 3}, {"N", 37}});
    }
  }
}

TEST(HostMap, SixteenBitRounding) {
  RunOptions options;
  options.tolerance = 0;
  for (const double scale : {1e-8, 1e-4, 1.0, 1e4, 1e6}) {
    options.low = -scale;
    options.high = scale;
    for (const ElementType out : {ElementType::f16, ElementType::bf16}) {
      expect_right(elementwise(ScalarExpr::cast(out, read(0)), ElementType::f32, out), {{"M", 8}, {"N", 61}}, options);
      expect_right(elementwise(read(0, out), out, ElementType::f32), {{"M", 8}, {"N", 61}}, options);
    }
  }
}

struct Function {
  const char* name;
  ScalarOp op;
  double low, high, tolerance;
};

class HostFunction : public testing::TestWithParam<Function> {};

TEST_P(HostFunction, MatchesDouble) {
  const Function& f = GetParam();
  RunOptions options;
  options.low = f.low;
  options.high = f.high;
  options.tolerance = f.tolerance;
  expect_right(elementwise(op(f.op, {read(0)})), {{"M", 60}, {"N", 101}}, options);
}

// A tolerance t allows t * (1 + |result|); 2^-23 = 1.2e-7.
INSTANTIATE_TEST_SUITE_P(
    All, HostFunction,
    testing::Values(Function{"exp", ScalarOp::exp, -20, 4, 1.5e-7}, Function{"exp_large", ScalarOp::exp, -110, 89, 1.5e-7},
                    Function{"exp2", ScalarOp::exp2, -30, 6, 1.5e-7}, Function{"log", ScalarOp::log, 1e-6, 50, 1.5e-7},
                    Function{"sqrt", ScalarOp::sqrt, 0, 100, 1.3e-7}, Function{"rsqrt", ScalarOp::rsqrt, 1e-3, 100, 2.5e-7},
                    Function{"tanh", ScalarOp::tanh, -10, 10, 2e-7}, Function{"tanh_small", ScalarOp::tanh, -0.7, 0.7, 1e-7},
                    Function{"erf", ScalarOp::erf, -5, 5, 2e-7}, Function{"erf_small", ScalarOp::erf, -1.1, 1.1, 1.5e-7},
                    Function{"floor", ScalarOp::floor, -9, 9, 0}, Function{"abs", ScalarOp::abs, -9, 9, 0}),
    [](const auto& info) { return info.param.name; });

TEST(HostMap, RelativeErrorOfExpAndLogIsSmall) {
  // Scaled so that the tolerance is relative: exp(x) * exp(30) - style products are avoided by testing large results.
  RunOptions options;
  options.low = 20;
  options.high = 88;
  options.tolerance = 1.6e-7;
  expect_right(elementwise(op(ScalarOp::exp, {read(0)})), {{"M", 60}, {"N", 101}}, options);
  options.low = 30;
  options.high = 127;
  expect_right(elementwise(op(ScalarOp::exp2, {read(0)})), {{"M", 60}, {"N", 101}}, options);
}

TEST(HostMap, PowersOfAnyBase) {
  RunOptions options;
  options.low = 0.01;
  options.high = 9;
  options.tolerance = 2e-7;
  for (const double exponent : {2.5, -1.5, 0.5, 3.0, 7.0}) {
    expect_right(elementwise(op(ScalarOp::pow, {read(0), f32(exponent)})), {{"M", 9}, {"N", 33}}, options);
  }
  options.low = -4;
  for (const double exponent : {5.0, -4.0, 0.0}) {
    expect_right(elementwise(op(ScalarOp::pow, {read(0), f32(exponent)})), {{"M", 9}, {"N", 33}}, options);
  }
}

/// Values of f at special points, through an index that selects among constants.
TEST(HostMap, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> points{0.0, -0.0, inf, -inf, nan, 0x1p-130, 88.75, 88.5, 89, -104, 200, -200, 1, -1};
  for (const ScalarOp f :
       {ScalarOp::exp, ScalarOp::exp2, ScalarOp::log, ScalarOp::tanh, ScalarOp::erf, ScalarOp::sqrt, ScalarOp::rsqrt}) {
    TileOp s = make(OpKind::map, {dim("j", N)}, {0, {j}}, {}, f32(0));
    s.indices = {j};
    ScalarExpr value = f32(points[0]);
    for (std::size_t k = 1; k < points.size(); ++k) {
      const ScalarExpr here =
          op(ScalarOp::eq, {ScalarExpr::index(0), ScalarExpr::constant(static_cast<double>(k), ElementType::i32)});
      value = op(ScalarOp::select, {here, f32(points[k]), value});
    }
    s.value = op(f, {value});
    SCOPED_TRACE(std::string(to_string(f)));
    RunOptions options;
    options.tolerance = 3e-7;
    const TileProgram p = program({"N"}, {argument("out", TensorRole::output, {N})}, node(s));
    expect_right(p, {{"N", static_cast<std::int64_t>(points.size())}}, options);
  }
}

TEST(HostMap, IntegersWrapAndDivideLikeTheInterpreter) {
  const auto number = [](double value) { return ScalarExpr::constant(value, ElementType::i32); };
  const ScalarExpr x = ScalarExpr::read(0, ElementType::i32);
  RunOptions options;
  options.tolerance = 0;
  for (const ScalarExpr& value :
       {op(ScalarOp::mul, {x, number(123456789)}), op(ScalarOp::div, {x, number(7)}), op(ScalarOp::div, {x, number(-7)}),
        op(ScalarOp::div, {x, number(0)}), op(ScalarOp::shift_left, {x, number(5)}),
        op(ScalarOp::shift_right_logical, {x, number(3)}), op(ScalarOp::bit_xor, {x, number(0x55)}),
        op(ScalarOp::mul_high_unsigned, {x, number(1234567)}), op(ScalarOp::min, {x, number(3)}), op(ScalarOp::abs, {x})}) {
    expect_right(elementwise(value, ElementType::i32, ElementType::i32), {{"M", 4}, {"N", 50}}, options);
  }
}

/// f(a - x c) with a the product x c as memory holds it: 0 exactly, where an fma would leave what the product was rounded by, of either sign.
ScalarExpr of_difference(ScalarOp function) {
  const ScalarExpr product = op(ScalarOp::mul, {read(0), f32(0.1)});
  return op(function, {op(ScalarOp::sub, {ScalarExpr::cast(ElementType::f32, product), product})});
}

TEST(HostMap, ProductsThatDecideAboutASignAreRounded) {
  RunOptions options;
  options.tolerance = 0;
  for (const ScalarOp function : {ScalarOp::sqrt, ScalarOp::log1p}) {
    options.reference = [](std::map<std::string, std::vector<double>>& memory) {
      std::fill(memory.at("out").begin(), memory.at("out").end(), 0.0);
    };
    expect_right(elementwise(of_difference(function)), {{"M", 3}, {"N", 65}}, options);
  }
  // On a GPU ptxas would make an fma of what LLVM has left apart.
  const auto rounds = [](ScalarOp function) {
    const ScalarExpr value = op(function, {op(ScalarOp::sub, {f32(1), op(ScalarOp::mul, {read(0), f32(0.1)})})});
    return compile_nvptx(elementwise(value), {}).ir.find("nvvm.mul.rn.f") != std::string::npos;
  };
  EXPECT_TRUE(rounds(ScalarOp::sqrt));
  EXPECT_FALSE(rounds(ScalarOp::exp)) << "no sign is decided here";
}

TEST(HostMap, BroadcastsAndIndices) {
  TileOp s = make(OpKind::map, {dim("i", M), dim("j", N)}, {2, {i, j}}, {{0, {i}}, {1, {j}}}, f32(0));
  s.indices = {i * IntExpr(3) + j, floor_div(j, 3)};
  const ScalarExpr position = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)),
                   third = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(1));
  s.value = op(ScalarOp::add, {op(ScalarOp::mul, {read(0), read(1)}), op(ScalarOp::sub, {position, third})});
  const TileProgram p = program(
      {"M", "N"},
      {argument("a", TensorRole::input, {M}), argument("b", TensorRole::input, {N}), argument("out", TensorRole::output, {M, N})},
      node(s));
  expect_right(p, {{"M", 4}, {"N", 29}});
}

TEST(HostMap, ScalarArguments) {
  TileProgram p = elementwise(op(ScalarOp::mul, {read(0), ScalarExpr::scalar("scale", ElementType::f32)}));
  p.scalars.push_back({"scale", ElementType::f32, 2.0});
  RunOptions options;
  options.scalars["scale"] = 0.375;
  expect_right(p, {{"M", 2}, {"N", 19}}, options);
}

TEST(HostMap, TransposesAndStridedWrites) {
  const TileProgram transpose =
      program({"M", "N"}, {argument("in", TensorRole::input, {N, M}), argument("out", TensorRole::output, {M, N})},
              node(make(OpKind::copy, {dim("i", M), dim("j", N)}, {1, {i, j}}, {{0, {j, i}}}, read(0))));
  expect_right(transpose, {{"M", 13}, {"N", 21}});
  const TileProgram scatter = program(
      {"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M, N * IntExpr(2)})},
      node(make(OpKind::map, {dim("i", M), dim("j", N)}, {1, {i, j * IntExpr(2)}}, {{0, {i, j}}}, op(ScalarOp::exp, {read(0)}))));
  expect_right(scatter, {{"M", 3}, {"N", 21}});
}

TEST(HostMap, IrregularIndices) {
  const TileProgram p =
      program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M, N})},
              node(make(OpKind::map, {dim("i", M), dim("j", N)}, {1, {i, j}},
                        {{0, {i, floor_div(j, 2)}}, {0, {mod(i + j, 3), j}}}, op(ScalarOp::add, {read(0), read(1)}))));
  expect_right(p, {{"M", 5}, {"N", 37}});
}

TEST(HostMap, GuardsShortenLoopsAndFillCoversTheRest) {
  for (const bool fill : {false, true}) {
    const IntExpr guards[] = {ge(i, j),
                              ge(j, i * IntExpr(2) - IntExpr(3)),
                              ge(i, j) && ge(j, i - IntExpr(4)),
                              ge(IntExpr(5), i),
                              ge(M, 3),
                              ge(M, 300),
                              IntExpr::make(IntOp::eq, {j, i}),
                              IntExpr::make(IntOp::logical_or, {ge(i, j), ge(j, 20)}),
                              ge(mod(j, 3), 1),
                              ge(i * IntExpr(3), j * IntExpr(2) + IntExpr(1)),
                              IntExpr::make(IntOp::eq, {j * IntExpr(2), i}),
                              IntExpr::make(IntOp::logical_not, {ge(j, i)})};
    for (const IntExpr& guard : guards) {
      SCOPED_TRACE(guard.str());
      TileOp s = make(OpKind::map, {dim("i", M), dim("j", N)}, {1, {i, j}}, {{0, {i, j}}}, op(ScalarOp::mul, {read(0), f32(2)}));
      s.guard = guard;
      if (fill) s.fill = -7;
      expect_right(
          program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M, N})}, node(s)),
          {{"M", 11}, {"N", 35}});
    }
  }
}

TEST(HostMap, GuardedReadsStayInsideTheTensor) {
  // in has fewer columns than the box: what lies beyond is never touched (the interpreter would throw).
  TileOp s = make(OpKind::map, {dim("i", M), dim("j", N)}, {1, {i, j}}, {{0, {i, j - IntExpr(3)}}}, read(0));
  s.guard = ge(j, 3) && ge(mod(j, 2), 1);
  s.fill = 0;
  expect_right(
      program({"M", "N"}, {argument("in", TensorRole::input, {M, N - IntExpr(3)}), argument("out", TensorRole::output, {M, N})},
              node(s)),
      {{"M", 4}, {"N", 30}});
}

TEST(HostMap, SelectReadsOnlyTheChosenSide) {
  TileOp s =
      make(OpKind::map, {dim("i", M), dim("j", N)}, {1, {i, j}}, {{0, {i, j - IntExpr(1)}}, {0, {i - IntExpr(1), j}}}, f32(0));
  s.indices = {i, j};
  const auto zero = ScalarExpr::constant(0, ElementType::i32);
  const ScalarExpr left = op(ScalarOp::select, {op(ScalarOp::lt, {zero, ScalarExpr::index(1)}), read(0), f32(5)});
  const ScalarExpr above = op(ScalarOp::select, {op(ScalarOp::lt, {zero, ScalarExpr::index(0)}), read(1), f32(6)});
  s.value = op(ScalarOp::sub, {left, above});
  expect_right(
      program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M, N})}, node(s)),
      {{"M", 4}, {"N", 30}});
}

TEST(HostPoints, SequentialDependencesKeepTheirOrder) {
  // a[i, j] += a[i, j-1] + a[i-1, j]: every point depends on its neighbours.
  TileOp s = make(OpKind::points, {dim("i", M, false, 1), dim("j", N, false, 1)}, {0, {i, j}},
                  {{0, {i, j}}, {0, {i, j - IntExpr(1)}}, {0, {i - IntExpr(1), j}}},
                  op(ScalarOp::mul, {op(ScalarOp::add, {op(ScalarOp::add, {read(0), read(1)}), read(2)}), f32(0.33)}));
  for (OpDim& d : s.dims) d.parallel = false;
  const TileProgram p = program({"M", "N"}, {argument("a", TensorRole::output, {M, N})}, node(s));
  expect_right(p, {{"M", 9}, {"N", 40}});
}

TEST(HostPoints, ParallelInnermostDimIsVectorised) {
  // a[i, j] = a[i-1, j] + a[i-1, j+1]: rows depend on each other, columns do not.
  TileOp s = make(OpKind::points, {dim("i", M, false, 1), dim("j", N - IntExpr(1))}, {0, {i, j}},
                  {{0, {i - IntExpr(1), j}}, {0, {i - IntExpr(1), j + IntExpr(1)}}},
                  op(ScalarOp::mul, {op(ScalarOp::add, {read(0), read(1)}), f32(0.5)}));
  s.dims[0].parallel = false;
  expect_right(program({"M", "N"}, {argument("a", TensorRole::output, {M, N})}, node(s)), {{"M", 9}, {"N", 40}});
}

TEST(HostPoints, ReductionsInOrder) {
  TileOp s = make(OpKind::points, {dim("i", M), dim("j", N, true)}, {1, {floor_div(i, 2)}}, {{0, {i, j}}}, read(0));
  s.reduction = ReductionOp::add;
  for (OpDim& d : s.dims) d.parallel = false;
  expect_right(
      program({"M", "N"}, {argument("in", TensorRole::input, {M, N}), argument("out", TensorRole::output, {M})}, node(s)),
      {{"M", 6}, {"N", 17}});
}

TEST(HostMap, StreamingStoresAtAnyAlignment) {
  for (const std::int64_t shift : {0, 1, 4}) {
    for (const std::int64_t gap : {0, 1}) {
      TileProgram p = elementwise(op(ScalarOp::add, {read(0), f32(1)}));
      p.buffers[1].streaming = true;
      RunOptions options;
      options.shift = shift;
      options.gap = gap;
      expect_right(p, {{"M", 5}, {"N", 72}}, options);
      expect_right(p, {{"M", 5}, {"N", 77}}, options);
    }
  }
  TileProgram p = elementwise(op(ScalarOp::add, {read(0), f32(1)}));
  p.buffers[1].streaming = true;
  HostOptions keep;
  keep.keep_ir = true;
  const CompiledHost compiled = compile_host(p, {"x86-64-v3", "", 32, 16}, keep);
  EXPECT_NE(compiled.ir.find("!nontemporal"), std::string::npos);
  EXPECT_NE(compiled.assembly.find("vmovntps"), std::string::npos);
  EXPECT_NE(compiled.assembly.find("sfence"), std::string::npos);
}

TEST(HostMap, EmptySizesDoNothing) { expect_right(elementwise(read(0)), {{"M", 0}, {"N", 8}}); }

TEST(HostCompile, UnknownCpuIsRefused) { EXPECT_THROW(compile_host(elementwise(read(0)), {"no-such-cpu", "", 32, 16}), Error); }

TEST(HostCompile, RecipeDescribesTheCall) {
  TileProgram p = elementwise(read(0), ElementType::bf16, ElementType::f32);
  p.fixed_sizes["N"] = 64;
  p.scalars.push_back({"eps", ElementType::f32, 0.5});
  const LaunchRecipe recipe = compile_host(p, detect_host()).kernel.recipe;
  EXPECT_EQ(recipe.target, "host");
  EXPECT_EQ(recipe.symbol, "kernel");
  ASSERT_EQ(recipe.arguments.size(), 2U);
  EXPECT_EQ(recipe.arguments[0].type, ElementType::bf16);
  EXPECT_FALSE(recipe.arguments[0].output);
  EXPECT_TRUE(recipe.arguments[1].output);
  EXPECT_EQ(recipe.arguments[1].shape.size(), 2U);
  EXPECT_EQ(recipe.scalars[0].default_value, 0.5);
  EXPECT_TRUE(is_valid_for(recipe.valid, {{"M", 3}, {"N", 64}}));
  EXPECT_FALSE(is_valid_for(recipe.valid, {{"M", 3}, {"N", 65}}));
}

}  // namespace
}  // namespace nestor::host_test
