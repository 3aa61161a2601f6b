// gelu(x + bias), with the exact (erf) form of gelu.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition bias_gelu(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> rows("rows"), cols("cols");
  ImageParam x(type, 2, "x"), bias(type, 1, "bias");
  Var c("c"), i("i");
  Func biased("biased"), out("out");
  biased(c, i) = nestor::kernels::wide(x(c, i)) + nestor::kernels::wide(bias(c));
  out(c, i) = cast(type, nestor::kernels::gelu(biased(c, i)));
  return {.outputs = {{out, {cols, rows}}},
          .inputs = {{x, {cols, rows}}, {bias, {cols}}},
          .sizes = {{rows, 4096}, {.param = cols, .default_value = 4096, .specialized = true}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-5)};
}

NESTOR_OPERATOR(bias_gelu, bias_gelu, "f32", "f16", "bf16");
}  // namespace
