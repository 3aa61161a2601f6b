// Softmax over the last dimension, made safe by the row's maximum.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition softmax(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> rows("rows"), cols("cols");
  ImageParam x(type, 2, "x");
  Var c("c"), i("i");
  RDom k(0, cols, "k"), r(0, cols, "r");
  Func largest("largest"), power("power"), total("total"), out("out");
  largest(i) = Float(32).min();
  largest(i) = max(largest(i), nestor::kernels::wide(x(k, i)));
  power(c, i) = exp(nestor::kernels::wide(x(c, i)) - largest(i));
  total(i) = 0.0f;
  total(i) += power(r, i);
  out(c, i) = cast(type, power(c, i) / total(i));
  return {.outputs = {{out, {cols, rows}}},
          .inputs = {{x, {cols, rows}}},
          .sizes = {{rows, 4096}, {.param = cols, .default_value = 1024, .specialized = true}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(softmax, softmax, "f32", "f16", "bf16");
}  // namespace
