// Exponentials of host kernels against double over all of f32: vectors of this CPU, the rest of a row, and an old CPU.
#include "unit/codegen/codegen_host_fixture.h"

#include <bit>

namespace nestor::host_test {
namespace {

constexpr double kMostUlp = 1.5;

/// In units of the last place of f32 at `exact`. Results below the normal numbers may be rounded to 0 or to subnormal ones.
double error_ulp(float got, double exact) {
  const auto nearest = static_cast<float>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(nearest)) return got == nearest ? 0 : INFINITY;
  if (exact < 0x1p-126 && got == 0) return 0;
  int exponent = 0;
  std::frexp(nearest, &exponent);
  return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

std::vector<float> run(ScalarOp function, std::vector<float> x, const HostTarget& target) {
  const IntExpr n = var("N"), i = var("i");
  const TileProgram p = program({"N"}, {argument("in", TensorRole::input, {n}), argument("out", TensorRole::output, {n})},
                                node(make(OpKind::map, {dim("i", n)}, {1, {i}}, {{0, {i}}}, op(function, {read(0)}))));
  std::vector<float> y(x.size());
  LoadedHostKernel(compile_host(p, target).kernel)
      .run({x.data(), y.data()}, {1, 1}, {{"N", static_cast<std::int64_t>(x.size())}}, {}, 1);
  return y;
}

double exact(ScalarOp function, float x) { return function == ScalarOp::exp ? std::exp(double{x}) : std::exp2(double{x}); }

class HostExp : public testing::TestWithParam<ScalarOp> {
 protected:
  void check(const std::vector<float>& x) {
    for (const HostTarget& target : {detect_host(), plain_target()}) {
      const std::vector<float> y = run(GetParam(), x, target);
      double worst = 0;
      std::size_t where = 0;
      for (std::size_t k = 0; k < x.size(); ++k) {
        const double error = error_ulp(y[k], exact(GetParam(), x[k]));
        if (error > worst) worst = error, where = k;
      }
      EXPECT_LT(worst, kMostUlp) << target.cpu << " at " << std::hexfloat << x[where] << ": " << y[where];
    }
  }
};

TEST_P(HostExp, OverAllNumbersOfF32) {
  std::mt19937 random(1);
  std::vector<float> x((1 << 21) + 5);
  for (float& value : x) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  check(x);
}

TEST_P(HostExp, WhereResultsAreFinite) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-152, 129);
  std::vector<float> x((1 << 21) + 5);
  for (float& value : x) value = uniform(random);
  check(x);
}

/// Whole and half sixteenths, where the nearest table entry changes; ends of the range; special values.
TEST_P(HostExp, AtEdges) {
  std::vector<float> x{0.0F,  -0.0F,  INFINITY, -INFINITY, NAN,    0x1p-149F, -0x1p-149F,
                       3e38F, -3e38F, 88.7228F, -87.3365F, 786432, -786432};
  for (int k = -4064; k <= 4096; ++k) {
    const float edge = static_cast<float>(k) / 32;
    for (const float value : {edge, std::nextafter(edge, -INFINITY), std::nextafter(edge, INFINITY)}) x.push_back(value);
  }
  check(x);
}

/// Products, which may be rounded or become part of an fma: both must give the same sixteenths, and what rounding took of a large one
/// must not count as the rest.
TEST_P(HostExp, OfProducts) {
  const IntExpr n = var("N"), i = var("i");
  const ScalarExpr value = op(GetParam(), {op(ScalarOp::mul, {read(0), read(0)})});
  RunOptions options;
  options.tolerance = 1e-5;
  const TileProgram p = program({"N"}, {argument("in", TensorRole::input, {n}), argument("out", TensorRole::output, {n})},
                                node(make(OpKind::map, {dim("i", n)}, {1, {i}}, {{0, {i}}}, value)));
  options.low = 0, options.high = 9;
  expect_right(p, {{"N", 1 << 18}}, options);
  options.low = 20, options.high = 1e6;
  expect_right(p, {{"N", 1 << 12}}, options);
}

INSTANTIATE_TEST_SUITE_P(All, HostExp, testing::Values(ScalarOp::exp, ScalarOp::exp2),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace nestor::host_test
