// Layer normalisation of x + bias + residual, as it stands between the blocks of a transformer.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition bias_residual_layernorm(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> rows("rows"), cols("cols");
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), bias(type, 1, "bias"), residual(type, 2, "residual"), gamma(type, 1, "gamma"),
      beta(type, 1, "beta");
  Var c("c"), i("i");
  RDom k(0, cols, "k");
  Func summed("summed"), mean("mean"), variance("variance"), out("out");
  using nestor::kernels::wide;
  summed(c, i) = wide(x(c, i)) + wide(bias(c)) + wide(residual(c, i));
  mean(i) = 0.0f;
  mean(i) += summed(k, i) / cast<float>(cols);
  variance(i) = 0.0f;
  const Expr deviation = summed(k, i) - mean(i);
  variance(i) += deviation * deviation / cast<float>(cols);
  out(c, i) = cast(type, (summed(c, i) - mean(i)) / sqrt(variance(i) + eps) * wide(gamma(c)) + wide(beta(c)));
  return {.outputs = {{out, {cols, rows}}},
          .inputs = {{x, {cols, rows}}, {bias, {cols}}, {residual, {cols, rows}}, {gamma, {cols}}, {beta, {cols}}},
          .sizes = {{rows, 4096}, {.param = cols, .default_value = 1024, .specialized = true}},
          .scalars = {{eps, 1e-5}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(bias_residual_layernorm, bias_residual_layernorm, "f32", "f16", "bf16");
}  // namespace
