// silu(a gate) * (a up): the first half of a gated feed-forward layer (N. Shazeer, GLU Variants Improve Transformer, 2020).
#include "product_parts.h"

namespace {
using namespace Halide;

nestor::HalideDefinition swiglu(const std::string& variant) {
  nestor::kernels::ProductParts parts(variant);
  ImageParam gate(parts.type, 2, "gate"), up(parts.type, 2, "up");
  Var i("i"), j("j");
  RDom r(0, parts.k, "r"), s(0, parts.k, "s");
  Func gated("gated"), raised("raised"), out("out");
  gated(j, i) = 0.0f;
  gated(j, i) += parts.term(gate, r, i, j);
  raised(j, i) = 0.0f;
  raised(j, i) += parts.term(up, s, i, j);
  out(j, i) = cast(parts.type, gated(j, i) / (1.0f + exp(-gated(j, i))) * raised(j, i));
  return {.outputs = {{out, parts.result()}},
          .inputs = {{parts.a, parts.rows()}, {gate, parts.columns()}, {up, parts.columns()}},
          .sizes = parts.sizes(),
          .tolerance = nestor::kernels::tolerance_for(variant, 2e-4)};
}

NESTOR_OPERATOR(swiglu, swiglu, nestor::kernels::variants({"", "bt"}));
}  // namespace
