// gelu(x + bias), with the exact (erf) form of gelu.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition bias_gelu(const std::string& variant) {
  using nestor::kernels::wide;
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::RowSizes s;
  ImageParam x(type, 2, "x"), bias(nestor::kernels::weight_type_of(variant), 1, "bias");
  Var c("c"), i("i");
  Func biased("biased"), out("out");
  biased(c, i) = wide(x(c, i)) + wide(bias(c));
  out(c, i) = cast(type, nestor::kernels::gelu(biased(c, i)));
  return {.outputs = {{out, s.matrix()}},
          .inputs = {{x, s.matrix()}, {bias, s.row()}},
          .sizes = s.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(bias_gelu, bias_gelu, nestor::kernels::variants({"", "f32weight"}));
}  // namespace
