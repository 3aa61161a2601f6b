// Layer normalisation over the last dimension, with weight and bias.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition layernorm(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> rows("rows"), cols("cols");
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), weight(type, 1, "weight"), bias(type, 1, "bias");
  Var c("c"), i("i");
  RDom k(0, cols, "k");
  Func mean("mean"), variance("variance"), out("out");
  using nestor::kernels::wide;
  mean(i) = 0.0f;
  mean(i) += wide(x(k, i)) / cast<float>(cols);
  variance(i) = 0.0f;
  const Expr deviation = wide(x(k, i)) - mean(i);
  variance(i) += deviation * deviation / cast<float>(cols);
  const Expr normal = (wide(x(c, i)) - mean(i)) / sqrt(variance(i) + eps);
  out(c, i) = cast(type, normal * wide(weight(c)) + wide(bias(c)));
  return {.outputs = {{out, {cols, rows}}},
          .inputs = {{x, {cols, rows}}, {weight, {cols}}, {bias, {cols}}},
          .sizes = {{rows, 4096}, {.param = cols, .default_value = 1024, .specialized = true}},
          .scalars = {{eps, 1e-5}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(layernorm, layernorm, "f32", "f16", "bf16");
}  // namespace
