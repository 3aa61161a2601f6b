// Elementary functions on the GPU against double: kernels whose arguments are all f32 lose no more than a few units in the last
// place over the whole range. (The emulator's own approximations are rounded results, so that what remains is the code's error.)
#include "codegen/gpu/ptx/ptx_math.h"
#include "support/simt/simt_image.h"

#include <gtest/gtest.h>

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/TargetSelect.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <random>

namespace nestor::testing {
namespace {

/// y[i] = value(x[i]), as f32; `type` is that of x.
TileProgram function_program(ElementType type, const std::function<ScalarExpr(ScalarExpr)>& value) {
  ProgramMaker m("function");
  m.size("n");
  const int x = m.input("x", type, {var("n")}), y = m.output("y", ElementType::f32, {var("n")});
  TileOp op = make_op(OpKind::map, "f", {parallel_dim("i", 0, var("n"))}, {y, {var("i")}}, {{x, {var("i")}}});
  op.value = value(m.read(op, 0));
  return m.finish(leaf(op));
}

struct Values {
  std::vector<double> arguments;
  std::vector<float> results;
};

/// The function at `count` points within [-spread, spread].
Values run_function(ElementType type, const std::function<ScalarExpr(ScalarExpr)>& value, double spread, std::int64_t count) {
  const TileProgram program = function_program(type, value);
  const CompiledNvptx compiled = compile_nvptx(program, {});
  const LaunchRecipe& recipe = compiled.kernel.recipe;
  const Sizes sizes{{"n", count}};
  const CheckOptions options{.spread = spread};
  const CheckData data = make_data(program, recipe, sizes, options);
  const HostImage image(recipe, data, options);
  EXPECT_EQ(emulate(recipe, compiled.ir, sizes, image.arguments).problem, "");
  const auto* results = reinterpret_cast<const float*>(image.memory.at(1)->data());
  return {data.arguments.at(0).values, {results, results + count}};
}

/// Worst error in units in the last place (2^-23 relative) of results in the normal range.
double worst_ulp(ElementType type, const std::function<ScalarExpr(ScalarExpr)>& value, const std::function<double(double)>& exact,
                 double spread) {
  const Values values = run_function(type, value, spread, 20000);
  double worst = 0;
  for (std::size_t k = 0; k < values.results.size(); ++k) {
    const double expected = exact(values.arguments[k]);
    if (std::abs(expected) < 0x1p-125 || std::abs(expected) > 0x1p127) continue;
    worst = std::max(worst, std::abs(values.results[k] - expected) / (std::abs(expected) * 0x1p-23));
  }
  return worst;
}

ScalarExpr unary(ScalarOp op, ScalarExpr a) { return ScalarExpr::make(op, {std::move(a)}); }
ScalarExpr magnitude(ScalarExpr a) { return unary(ScalarOp::abs, std::move(a)); }
double exact_exp(double x) { return std::exp(x); }

/// f(x, y) of f32 as NvptxMath emits it, on the host: what needs no instructions of a GPU.
class OnHost {
 public:
  using Emit = std::function<llvm::Value*(nvptx::NvptxMath&, llvm::IRBuilderBase&, llvm::Value*, llvm::Value*)>;
  explicit OnHost(const Emit& emit) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto context = std::make_unique<llvm::LLVMContext>();
    auto module = std::make_unique<llvm::Module>("host", *context);
    llvm::IRBuilder<> builder(*context);
    auto* type = llvm::FunctionType::get(builder.getFloatTy(), {builder.getFloatTy(), builder.getFloatTy()}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "value", *module);
    builder.SetInsertPoint(llvm::BasicBlock::Create(*context, "entry", function));
    nvptx::NvptxMath math;
    builder.CreateRet(emit(math, builder, function->getArg(0), function->getArg(1)));
    jit_ = cantFail(llvm::orc::LLJITBuilder().create());
    cantFail(jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
    value_ = cantFail(jit_->lookup("value")).toPtr<float (*)(float, float)>();
  }
  float operator()(float x, float y = 0) const { return value_(x, y); }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  float (*value_)(float, float) = nullptr;
};

/// x -> 2^x by the polynomial; with `bounded_below`, beside a row's value (second argument).
struct PolynomialExp2 : OnHost {
  explicit PolynomialExp2(nvptx::NvptxMath::Polynomial form = {}, std::optional<bool> bounded_below = std::nullopt)
      : OnHost([=](auto& math, auto& b, llvm::Value* x, llvm::Value* row) mutable {
          if (bounded_below) form.unit = nvptx::NvptxMath::exponent_unit(b, row, *bounded_below);
          math.use_polynomial(form);
          return math.exp2(b, x);
        }) {}
};

/// In f32 up to 2^16, where almost all arguments are; beyond as elsewhere.
/// How often the code widens a number to f64, as it does for angles of many turns.
std::size_t widenings(const std::function<ScalarExpr(ScalarExpr)>& value) {
  const std::string code = compile_nvptx(function_program(ElementType::f32, value), {}).kernel.code;
  std::size_t found = 0;
  for (std::size_t at = code.find("cvt.f64.f32"); at != std::string::npos; at = code.find("cvt.f64.f32", at + 1)) ++found;
  return found;
}

TEST(NvptxAccuracy, OneAngleIsTurnedOnce) {
  const auto sine = [](const ScalarExpr& x) { return unary(ScalarOp::sin, x); };
  const auto cosine = [](const ScalarExpr& x) { return unary(ScalarOp::cos, x); };
  const auto product = [](const ScalarExpr& x, const ScalarExpr& y) { return ScalarExpr::make(ScalarOp::mul, {x, y}); };
  const std::size_t once = widenings(sine);
  EXPECT_GT(once, 0U);
  EXPECT_EQ(widenings([&](const ScalarExpr& x) { return product(product(sine(x), x), cosine(x)); }), once);
  EXPECT_EQ(widenings([&](const ScalarExpr& x) { return product(sine(x), cosine(product(x, x))); }), 2 * once);
}

TEST(NvptxAccuracy, SinesAndCosinesOfAllArguments) {
  const OnHost sine([](auto& math, auto& b, auto* x, auto*) { return math.sin(b, x); }),
      cosine([](auto& math, auto& b, auto* x, auto*) { return math.cos(b, x); });
  std::mt19937 random(1);
  double worst = 0;
  const auto look = [&](float x) {
    const auto error = [&](float got, double exact) {
      int exponent = 0;
      std::frexp(static_cast<float>(exact), &exponent);
      return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
    };
    worst =
        std::max({worst, error(sine(x), std::sin(static_cast<double>(x))), error(cosine(x), std::cos(static_cast<double>(x)))});
  };
  for (const float most : {3.0F, 100.0F, 65536.0F, 70000.0F, 1e9F}) {
    for (int k = 0; k < 1 << 19; ++k) look(std::uniform_real_distribution<float>(-most, most)(random));
  }
  for (int quarter = 1; quarter < 45000; ++quarter) {  // the numbers beside multiples of pi/2
    const auto at = static_cast<float>(quarter * std::numbers::pi / 2);
    for (const float x : {at, std::nextafter(at, 0.0F), std::nextafter(at, 1e9F)}) look(x);
  }
  EXPECT_LT(worst, 2);
  EXPECT_EQ(std::signbit(sine(-0.0F)), true);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_TRUE(std::isnan(sine(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(cosine(std::nanf(""))));
}

TEST(NvptxAccuracy, PolynomialsOfExponentialsAreAsGoodAsDocumentedAndNothingFarBelow) {
  const PolynomialExp2 power;
  double worst = 0;
  for (double x = -126; x < 10; x += 0.00117) {
    const double expected = std::exp2(static_cast<double>(static_cast<float>(x)));
    worst = std::max(worst, std::abs(power(static_cast<float>(x)) - expected) / expected);
  }
  EXPECT_LT(worst, 1.1e-4);
  EXPECT_GT(worst, 0.9e-4);
  EXPECT_EQ(power(0), 1);
  for (float x = -127; x < -126; x += 0.01F) {
    EXPECT_GE(power(x), 0) << x;
    EXPECT_LT(power(x), 0x1p-125F) << x;
  }
  for (const float x : {-127.0F, -127.4F, -128.0F, -1e4F, -1e30F, -std::numeric_limits<float>::infinity()})
    EXPECT_EQ(power(x), 0) << x;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {128.0F, 128.6F, 129.0F, 384.0F, 1e4F, 1e30F, infinity}) EXPECT_EQ(power(x), infinity) << x;
  for (const float x : {127.4F, 127.6F, 127.99F}) EXPECT_NEAR(power(x) / std::exp2(x), 1, 1.1e-4) << x;
}

/// Whatever tests are left out, arguments within what is known of them and NaN have the same results.
TEST(NvptxAccuracy, PolynomialsKeepNaN) {
  for (const bool below : {false, true}) {
    for (const bool above : {false, true}) {
      const PolynomialExp2 power({below, above});
      for (const double sign : {1.0, -1.0}) EXPECT_TRUE(std::isnan(power(static_cast<float>(std::copysign(std::nan(""), sign)))));
      EXPECT_EQ(power(0), 1);
      EXPECT_NEAR(power(-126) / 0x1p-126, 1, 1e-3);
      EXPECT_NEAR(power(126) / 0x1p126, 1, 1e-3);
      const float infinity = std::numeric_limits<float>::infinity();
      EXPECT_EQ(power(below ? -infinity : -126), below ? 0 : power(-126));
      EXPECT_EQ(power(above ? infinity : 126), above ? infinity : power(126));
    }
  }
}

/// A GPU's NaN stays NaN beside any row value, with the bits added to or not; what is infinitely far below such a row's maximum has no weight.
TEST(NvptxAccuracy, PolynomialsKeepNaNBesideARowsMaximum) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::bit_cast<float>(0x7fffffffU);
  for (const bool bounded : {false, true}) {
    const PolynomialExp2 power({true, false}, bounded);
    EXPECT_EQ(power(-3, 5), power(-3, -1e30F));
    EXPECT_NEAR(power(-3, 5) * 8, 1, 1.1e-4);
    EXPECT_EQ(power(-infinity, 5), 0);
    EXPECT_TRUE(std::isnan(power(nan, infinity)));
    EXPECT_TRUE(std::isnan(power(nan, nan)));
    EXPECT_LT(power(-infinity, infinity), 0x1p-140F);
    EXPECT_GE(power(-infinity, infinity), 0);
  }
  EXPECT_TRUE(std::isnan(PolynomialExp2({true, false}, false)(nan, -infinity)));
  EXPECT_EQ(PolynomialExp2({true, false}, true)(-infinity, -infinity), 0);
}

TEST(NvptxAccuracy, ExponentialsOfF32KernelsAreRightOverTheWholeRange) {
  EXPECT_LT(worst_ulp(ElementType::f32, exponential, exact_exp, 88), 1.7);  // and what ex2.approx is off by beyond half a unit
}

TEST(NvptxAccuracy, ExponentialsOf16BitKernelsAreFasterAndLessExact) {
  const double error = worst_ulp(ElementType::f16, exponential, exact_exp, 80);
  EXPECT_GT(error, 10);
  EXPECT_LT(error, 100);  // |x| 2^-24: far below what 16 bits can hold
}

/// Sums of 1 and a sigmoid are one function, which does not cancel: kernels of 16 bits compute it by one exponential.
TEST(NvptxAccuracy, OnePlusSigmoids) {
  struct Sigmoid {
    ScalarOp op;
    double (*exact)(double);
  };
  for (const Sigmoid& sigmoid : {Sigmoid{ScalarOp::erf, [](double x) { return std::erfc(-x); }},
                                 Sigmoid{ScalarOp::tanh, [](double x) { return 2 / (1 + std::exp(-2 * x)); }}}) {
    SCOPED_TRACE(std::string(to_string(sigmoid.op)));
    const auto sum = [&](ScalarExpr v) { return plus(unary(sigmoid.op, std::move(v)), ScalarExpr::constant(1)); };
    for (const ElementType type : {ElementType::f32, ElementType::f16}) {
      const Values values = run_function(type, sum, 9, 20000);
      double worst = 0, worst_left = 0;
      for (std::size_t k = 0; k < values.results.size(); ++k) {
        const double expected = sigmoid.exact(values.arguments[k]), error = std::abs(values.results[k] - expected);
        worst = std::max(worst, error);
        if (values.arguments[k] > -3) worst_left = std::max(worst_left, error / expected);
      }
      EXPECT_LT(worst, 0x1p-21);
      if (type == ElementType::f16) {
        EXPECT_LT(worst_left, 0x1p-8);
      }
    }
    const float infinity = std::numeric_limits<float>::infinity();
    for (const double point : {-infinity, -60000.0F, -30.0F, 0.0F, 30.0F, 60000.0F, infinity}) {
      const auto at_point = [&](ScalarExpr v) {
        return sum(plus(times(magnitude(std::move(v)), ScalarExpr::constant(0)), ScalarExpr::constant(point)));
      };
      EXPECT_NEAR(run_function(ElementType::f16, at_point, 1, 1).results.front(),
                  point == 0  ? 1
                  : point < 0 ? 0
                              : 2,
                  1e-20)
          << point;
    }
    const auto at_nan = [&](ScalarExpr v) { return sum(times(std::move(v), ScalarExpr::constant(std::nan("")))); };
    EXPECT_TRUE(std::isnan(run_function(ElementType::f16, at_nan, 1, 1).results.front()));
  }
}

TEST(NvptxAccuracy, OtherFunctionsOfF32KernelsAreWithinUnitsInTheLastPlace) {
  const auto error = [](const std::function<ScalarExpr(ScalarExpr)>& value, const std::function<double(double)>& exact) {
    return worst_ulp(ElementType::f32, value, exact, 1e6);
  };
  EXPECT_LT(error([](ScalarExpr v) { return unary(ScalarOp::log, magnitude(std::move(v))); },
                  [](double x) { return std::log(std::abs(x)); }),
            1.5);
  EXPECT_LT(error([](ScalarExpr v) { return unary(ScalarOp::rsqrt, magnitude(std::move(v))); },
                  [](double x) { return 1 / std::sqrt(std::abs(x)); }),
            1.0);
  EXPECT_LT(error([](ScalarExpr v) { return over(ScalarExpr::constant(1), std::move(v)); }, [](double x) { return 1 / x; }),
            0.501);
  EXPECT_LT(
      error([](ScalarExpr v) { return over(ScalarExpr::constant(1), plus(magnitude(std::move(v)), ScalarExpr::constant(1))); },
            [](double x) { return 1 / (1 + static_cast<double>(static_cast<float>(1 + std::abs(x)) - 1.0F)); }),
      1.01);
}

/// Bit by bit where the rest is none of the least numbers, else within one unit; infinities and NaN, too.
TEST(NvptxAccuracy, QuotientsByNumbersAreRoundedAsQuotients) {
  std::mt19937 random(3);
  for (const float y : {3.0F, -12.0F, 0.1F, -0.07F, 255.0F, 6500.0F, 1.9999999F, 0.99999994F, 1e30F, 1e-30F}) {
    const OnHost divided([=](auto& math, auto& b, auto* x, auto*) {
      return math.divide(b, x, llvm::ConstantFP::get(x->getType(), static_cast<double>(y)));
    });
    const auto look = [&](float x) {
      const float got = divided(x), expected = x / y;
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got)) << x << " / " << y;
      } else if (std::fabs(x) >= 0x1p-100F && std::fabs(expected) >= std::numeric_limits<float>::min()) {
        EXPECT_EQ(got, expected) << x << " / " << y;
      } else {
        EXPECT_NEAR(got, expected, std::max(0x1p-149, std::fabs(expected) * 0x1p-23)) << x << " / " << y;
      }
    };
    for (int k = 0; k < 1 << 18; ++k) look(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    for (int k = -300; k < 300; ++k) look(static_cast<float>(k));
    for (const float x : {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()}) {
      look(x);
      look(-x);
    }
  }
}

TEST(NvptxAccuracy, SpecialValuesOfF32Kernels) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto at = [](ScalarOp op, double value) {
    const auto function = [&](ScalarExpr v) {
      return unary(op, plus(times(magnitude(std::move(v)), ScalarExpr::constant(0)), ScalarExpr::constant(value)));
    };
    return run_function(ElementType::f32, function, 1, 1).results.front();
  };
  for (const float x : {-infinity, -3e38F, -1e10F, -200.0F, -88.0F}) {
    EXPECT_EQ(at(ScalarOp::exp, x), 0) << x;
    EXPECT_FALSE(std::signbit(at(ScalarOp::exp, x))) << x;
  }
  for (const float x : {88.73F, 89.0F, 1e10F, 1.7e38F, 3e38F, infinity}) EXPECT_EQ(at(ScalarOp::exp, x), infinity) << x;
  EXPECT_EQ(at(ScalarOp::exp, 0), 1);
  EXPECT_NEAR(at(ScalarOp::exp, 88.722831726F) / std::exp(88.722831726F), 1, 1e-6);  // the last one that is finite
  EXPECT_TRUE(std::isnan(at(ScalarOp::exp, std::nan(""))));
  const auto sigmoid_at = [&](double value) {
    const auto function = [&](ScalarExpr v) {
      const ScalarExpr x = plus(times(magnitude(std::move(v)), ScalarExpr::constant(0)), ScalarExpr::constant(value));
      return over(ScalarExpr::constant(1), plus(unary(ScalarOp::exp, unary(ScalarOp::neg, x)), ScalarExpr::constant(1)));
    };
    return run_function(ElementType::f32, function, 1, 1).results.front();
  };
  for (const float x : {-infinity, -3e38F, -100.0F}) EXPECT_EQ(sigmoid_at(x), 0) << x;
  for (const float x : {100.0F, 3e38F, infinity}) EXPECT_EQ(sigmoid_at(x), 1) << x;
  EXPECT_EQ(sigmoid_at(0), 0.5F);
  EXPECT_TRUE(std::isnan(sigmoid_at(std::nan(""))));
  EXPECT_EQ(at(ScalarOp::rsqrt, 0), infinity);
  EXPECT_EQ(at(ScalarOp::rsqrt, infinity), 0);
  EXPECT_TRUE(std::isnan(at(ScalarOp::rsqrt, -1)));
}

}  // namespace
}  // namespace nestor::testing
