// Gradient of log_softmax, from the gradient dy of its result and the result y itself.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition log_softmax_backward(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam dy(type, 2, "dy"), y(type, 2, "y");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func sum("sum"), dx("dx");
  sum(i) = 0.0f;
  sum(i) += wide(dy(k, i));
  dx(c, i) = cast(type, wide(dy(c, i)) - exp(wide(y(c, i))) * sum(i));
  return {.outputs = {{dx, s.matrix()}},
          .inputs = {{dy, s.matrix()}, {y, s.matrix()}},
          .sizes = s.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(log_softmax_backward, log_softmax_backward, "f32", "f16", "bf16");
}  // namespace
