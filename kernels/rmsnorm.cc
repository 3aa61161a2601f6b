// Root-mean-square normalisation over the last dimension, with weight.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition rmsnorm(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> rows("rows"), cols("cols");
  Param<float> eps("eps");
  ImageParam x(type, 2, "x"), weight(type, 1, "weight");
  Var c("c"), i("i");
  RDom k(0, cols, "k");
  Func mean_square("mean_square"), out("out");
  using nestor::kernels::wide;
  mean_square(i) = 0.0f;
  mean_square(i) += wide(x(k, i)) * wide(x(k, i)) / cast<float>(cols);
  out(c, i) = cast(type, wide(x(c, i)) / sqrt(mean_square(i) + eps) * wide(weight(c)));
  return {.outputs = {{out, {cols, rows}}},
          .inputs = {{x, {cols, rows}}, {weight, {cols}}},
          .sizes = {{rows, 4096}, {.param = cols, .default_value = 1024, .specialized = true}},
          .scalars = {{eps, 1e-5}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(rmsnorm, rmsnorm, "f32", "f16", "bf16");
}  // namespace
