// Gradient of softmax, from the gradient dy of its result and the result y itself.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition softmax_backward(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam dy(type, 2, "dy"), y(type, 2, "y");
  Var c("c"), i("i");
  RDom k(0, s.width, "k");
  Func product("product"), dx("dx");
  product(i) = 0.0f;
  product(i) += wide(dy(k, i)) * wide(y(k, i));
  dx(c, i) = cast(type, wide(y(c, i)) * (wide(dy(c, i)) - product(i)));
  return {.outputs = {{dx, s.matrix()}},
          .inputs = {{dy, s.matrix()}, {y, s.matrix()}},
          .sizes = s.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(softmax_backward, softmax_backward, "f32", "f16", "bf16");
}  // namespace
