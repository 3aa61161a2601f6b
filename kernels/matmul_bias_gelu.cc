// gelu(a b + bias): a transformer's first feed-forward layer.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition matmul_bias_gelu(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> m("m"), n("n"), k("k");
  ImageParam a(type, 2, "a"), b(type, 2, "b"), bias(type, 1, "bias");
  Var i("i"), j("j");
  RDom r(0, k, "r");
  Func product("product"), biased("biased"), out("out");
  using nestor::kernels::wide;
  product(j, i) = 0.0f;
  product(j, i) += wide(a(r, i)) * wide(b(j, r));
  biased(j, i) = product(j, i) + wide(bias(j));
  out(j, i) = cast(type, nestor::kernels::gelu(biased(j, i)));
  return {.outputs = {{out, {n, m}}},
          .inputs = {{a, {k, m}}, {b, {n, k}}, {bias, {n}}},
          .sizes = {{m, 1024}, {n, 1024}, {k, 1024}},
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(matmul_bias_gelu, matmul_bias_gelu, "f32", "f16", "bf16");
}  // namespace
