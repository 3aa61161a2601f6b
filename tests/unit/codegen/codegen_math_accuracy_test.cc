// sin, cos, log1p, expm1 and atan as all back ends emit them, against double, over all of f32 (the bounds of math_emit.h).
#include "codegen/llvm/math_emit.h"

#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/TargetSelect.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace nestor {
namespace {

using Builder = llvm::IRBuilderBase;
constexpr int kLanes = 8;
const float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

using Emit = std::function<llvm::Value*(const MathEmitter&, Builder&, llvm::Value*)>;

/// A function of a vector, compiled for this machine.
class Compiled {
 public:
  explicit Compiled(const Emit& emit) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    auto context = std::make_unique<llvm::LLVMContext>();
    auto module = std::make_unique<llvm::Module>("functions", *context);
    llvm::IRBuilder<> b(*context);
    auto* type = llvm::FunctionType::get(b.getVoidTy(), {b.getPtrTy()}, false);
    auto* function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "map", *module);
    b.SetInsertPoint(llvm::BasicBlock::Create(*context, "entry", function));
    auto* vector = llvm::FixedVectorType::get(b.getFloatTy(), kLanes);
    llvm::Value* x = b.CreateAlignedLoad(vector, function->getArg(0), llvm::Align(4));
    b.CreateAlignedStore(emit(MathEmitter(), b, x), function->getArg(0), llvm::Align(4));
    b.CreateRetVoid();
    EXPECT_FALSE(llvm::verifyModule(*module, &llvm::errs()));
    jit_ = cantFail(llvm::orc::LLJITBuilder().create());
    cantFail(jit_->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))));
    map_ = cantFail(jit_->lookup("map")).toPtr<void (*)(float*)>();
  }
  void operator()(float* x) const { map_(x); }
  float at(float x) const {
    float lanes[kLanes] = {x, 1, 2, 3, 4, 5, 6, 7};
    map_(lanes);
    return lanes[0];
  }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  void (*map_)(float*) = nullptr;
};

struct Function {
  const char* name;
  Emit emit;
  double (*exact)(double);
  double most_ulp;
};

const Function kFunctions[] = {
    {"sin", [](auto& math, auto& b, auto* x) { return math.sin(b, x); }, [](double x) { return std::sin(x); }, 2},
    {"cos", [](auto& math, auto& b, auto* x) { return math.cos(b, x); }, [](double x) { return std::cos(x); }, 2},
    {"log1p", [](auto& math, auto& b, auto* x) { return math.log1p(b, x); }, [](double x) { return std::log1p(x); }, 3},
    {"expm1", [](auto& math, auto& b, auto* x) { return math.expm1(b, x); }, [](double x) { return std::expm1(x); }, 2},
    {"atan", [](auto& math, auto& b, auto* x) { return math.atan(b, x); }, [](double x) { return std::atan(x); }, 4}};

/// Distance in units of the last place of `exact` as f32; 0 for the same special value.
double error_ulp(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(exact) || std::isinf(nearest) || nearest == 0)
    return std::isnan(exact) ? (std::isnan(got) ? 0 : kInfinity)
                             : (got == nearest && std::signbit(got) == std::signbit(nearest) ? 0 : kInfinity);
  int exponent = 0;
  std::frexp(nearest, &exponent);
  return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

class MathAccuracy : public testing::TestWithParam<Function> {
 protected:
  Compiled compiled{GetParam().emit};

  double worst(const std::function<float()>& next, int count, float* where) {
    double worst = 0;
    for (int done = 0; done < count; done += kLanes) {
      float x[kLanes], y[kLanes];
      for (int k = 0; k < kLanes; ++k) y[k] = x[k] = next();
      compiled(y);
      for (int k = 0; k < kLanes; ++k) {
        const double error = error_ulp(y[k], GetParam().exact(x[k]));
        if (error > worst) *where = x[k];
        worst = std::max(worst, error);
      }
    }
    return worst;
  }
};

TEST_P(MathAccuracy, OverAllNumbersOfF32) {
  std::mt19937 random(1);
  float where = 0;
  const double error = worst([&] { return std::bit_cast<float>(static_cast<std::uint32_t>(random())); }, 4 << 20, &where);
  EXPECT_LT(error, GetParam().most_ulp) << "at " << std::hexfloat << where;
  RecordProperty("ulp", std::to_string(error));
}

TEST_P(MathAccuracy, WhereMostArgumentsAre) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 3);
  float where = 0;
  const double error = worst([&] { return normal(random); }, 2 << 20, &where);
  EXPECT_LT(error, GetParam().most_ulp) << "at " << std::hexfloat << where;
}

INSTANTIATE_TEST_SUITE_P(All, MathAccuracy, testing::ValuesIn(kFunctions), [](const auto& info) { return info.param.name; });

/// Beside multiples of pi/2, where nearly all bits of x cancel: the closest of each exponent.
TEST(MathAccuracyOfAngles, BesideMultiplesOfAQuarterTurn) {
  const Compiled sine(kFunctions[0].emit), cosine(kFunctions[1].emit);
  EXPECT_LT(error_ulp(sine.at(0x1.f9cbe2p+95F), std::sin(0x1.f9cbe2p+95)), 2);  // 16367173 * 2^72
  for (int exponent = 0; exponent < 128; ++exponent) {
    float closest = 1;
    for (std::uint32_t mantissa = 0; mantissa < 1U << 23; mantissa += 97) {
      const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23 | mantissa);
      if (std::fabs(std::sin(2.0 * x)) < std::fabs(std::sin(2.0 * closest))) closest = x;
    }
    EXPECT_LT(error_ulp(sine.at(closest), std::sin(static_cast<double>(closest))), 2) << closest;
    EXPECT_LT(error_ulp(cosine.at(closest), std::cos(static_cast<double>(closest))), 2) << closest;
  }
}

TEST(MathAccuracyOfEdges, AreAsPyTorchHasThem) {
  const auto at = [](int function, float x) { return Compiled(kFunctions[function].emit).at(x); };
  constexpr int kSin = 0, kCos = 1, kLog1p = 2, kExpm1 = 3, kAtan = 4;
  for (const int function : {kSin, kCos, kLog1p, kExpm1, kAtan}) EXPECT_TRUE(std::isnan(at(function, kNaN))) << function;
  for (const int function : {kSin, kLog1p, kExpm1, kAtan}) {
    EXPECT_TRUE(std::signbit(at(function, -0.0F))) << function;
    EXPECT_FALSE(std::signbit(at(function, 0.0F))) << function;
    EXPECT_EQ(at(function, 0x1p-149F), 0x1p-149F) << function;
  }
  for (const float x : {kInfinity, -kInfinity}) {
    EXPECT_TRUE(std::isnan(at(kSin, x)));
    EXPECT_TRUE(std::isnan(at(kCos, x)));
    EXPECT_EQ(at(kAtan, x), std::copysign(1.57079637F, x));
  }
  EXPECT_EQ(at(kCos, 0), 1);
  EXPECT_EQ(at(kLog1p, -1), -kInfinity);
  EXPECT_TRUE(std::isnan(at(kLog1p, -1.0000001F)));
  EXPECT_TRUE(std::isnan(at(kLog1p, -kInfinity)));
  EXPECT_EQ(at(kLog1p, kInfinity), kInfinity);
  EXPECT_EQ(at(kExpm1, -kInfinity), -1);
  EXPECT_EQ(at(kExpm1, -200), -1);
  EXPECT_EQ(at(kExpm1, kInfinity), kInfinity);
  EXPECT_EQ(at(kExpm1, 89), kInfinity);
  EXPECT_LT(at(kExpm1, 88.72F), kInfinity);
}

}  // namespace
}  // namespace nestor
