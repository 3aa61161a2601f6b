// a b + bias + residual: a transformer's layers that return to the residual stream.
#include "product_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition matmul_bias_residual(const std::string& variant) {
  nestor::kernels::ProductParts parts(variant);
  ImageParam b(parts.type, 2, "b"), bias(parts.type, 1, "bias"), residual(parts.type, 2, "residual");
  Var i("i"), j("j");
  RDom r(0, parts.k, "r");
  Func product("product"), out("out");
  product(j, i) = 0.0f;
  product(j, i) += parts.term(b, r, i, j);
  out(j, i) = cast(parts.type, product(j, i) + wide(bias(j)) + wide(residual(j, i)));
  return {.outputs = {{out, parts.result()}},
          .inputs = {{parts.a, parts.rows()}, {b, parts.columns()}, {bias, {parts.n}}, {residual, parts.result()}},
          .sizes = parts.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(matmul_bias_residual, matmul_bias_residual, nestor::kernels::variants({"", "bt"}));
}  // namespace
