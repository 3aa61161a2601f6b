// Softmax over the last dimension, made safe by the row's maximum.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition softmax(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam x(type, 2, "x");
  Var c("c"), i("i");
  RDom k(0, s.width, "k"), r(0, s.width, "r");
  Func largest("largest"), power("power"), total("total"), out("out");
  largest(i) = Float(32).min();
  largest(i) = max(largest(i), wide(x(k, i)));
  power(c, i) = exp(wide(x(c, i)) - largest(i));
  total(i) = 0.0f;
  total(i) += power(r, i);
  out(c, i) = cast(type, power(c, i) / total(i));
  return {.outputs = {{out, s.matrix()}},
          .inputs = {{x, s.matrix()}},
          .sizes = s.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(softmax, softmax, "f32", "f16", "bf16");
}  // namespace
