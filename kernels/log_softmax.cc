// Logarithm of the softmax over the last dimension: x - max - log(sum of exp(x - max)).
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition log_softmax(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam x(type, 2, "x");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func largest("largest"), total("total"), log_total("log_total"), out("out");
  largest(i) = Float(32).min();
  largest(i) = max(largest(i), wide(x(k, i)));
  total(i) = 0.0f;
  total(i) += exp(wide(x(k, i)) - largest(i));
  log_total(i) = log(total(i));
  out(c, i) = cast(type, wide(x(c, i)) - largest(i) - log_total(i));
  return {.outputs = {{out, s.matrix()}},
          .inputs = {{x, s.matrix()}},
          .sizes = s.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(log_softmax, log_softmax, "f32", "f16", "bf16");
}  // namespace
