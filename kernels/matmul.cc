// out[m, n] = sum over k of a[m, k] b[k, n], accumulated in f32.
#include "product_parts.h"

namespace {
using namespace Halide;

nestor::HalideDefinition matmul(const std::string& variant) {
  nestor::kernels::ProductParts parts(variant);
  ImageParam b(parts.type, 2, "b");
  Var i("i"), j("j");
  RDom r(0, parts.k, "r");
  Func product("product"), out("out");
  product(j, i) = 0.0f;
  product(j, i) += parts.term(b, r, i, j);
  out(j, i) = cast(parts.type, product(j, i));
  // For f32 the product is the result: a copy would be no part of anybody's definition.
  const Func& result = parts.type.bits() == 32 ? product : out;
  return {.outputs = {{result, parts.result()}},
          .inputs = {{parts.a, parts.rows()}, {b, parts.columns()}},
          .sizes = parts.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(matmul, matmul, nestor::kernels::variants({"", "bt", "at", "at.bt"}));
}  // namespace
