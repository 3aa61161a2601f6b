// gelu(a b + bias): a transformer's first feed-forward layer.
#include "product_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition matmul_bias_gelu(const std::string& variant) {
  nestor::kernels::ProductParts parts(variant);
  ImageParam b(parts.type, 2, "b"), bias(parts.type, 1, "bias");
  Var i("i"), j("j");
  RDom r(0, parts.k, "r");
  Func product("product"), biased("biased"), out("out");
  product(j, i) = 0.0f;
  product(j, i) += parts.term(b, r, i, j);
  biased(j, i) = product(j, i) + wide(bias(j));
  out(j, i) = cast(parts.type, nestor::kernels::gelu(biased(j, i)));
  return {.outputs = {{out, parts.result()}},
          .inputs = {{parts.a, parts.rows()}, {b, parts.columns()}, {bias, {parts.n}}},
          .sizes = parts.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(matmul_bias_gelu, matmul_bias_gelu, nestor::kernels::variants({"", "bt"}));
}  // namespace
