// (silu(x w1) * (x w3)) w2 for every row of x: a gated feed-forward layer (N. Shazeer, GLU Variants Improve Transformer, 2020).
#include "operator.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition gated_mlp(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> rows("rows"), width("width"), hidden("hidden");
  ImageParam x(type, 2, "x"), w1(type, 2, "w1"), w2(type, 2, "w2"), w3(type, 2, "w3");
  Var i("i"), c("c"), u("u");
  RDom r(0, width, "r"), s(0, width, "s"), t(0, hidden, "t");
  Func gate("gate"), up("up"), active("active"), sum("sum"), out("out");
  gate(u, i) = 0.0f;
  gate(u, i) += wide(x(r, i)) * wide(w1(u, r));
  up(u, i) = 0.0f;
  up(u, i) += wide(x(s, i)) * wide(w3(u, s));
  active(u, i) = gate(u, i) / (1.0f + exp(-gate(u, i))) * up(u, i);
  sum(c, i) = 0.0f;
  sum(c, i) += active(t, i) * wide(w2(c, t));
  out(c, i) = cast(type, sum(c, i));
  return {.outputs = {{out, {width, rows}}},
          .inputs = {{x, {width, rows}}, {w1, {hidden, width}}, {w2, {width, hidden}}, {w3, {hidden, width}}},
          .sizes = {{rows, 1024},
                    {.param = width, .default_value = 256, .specialized = true},
                    {.param = hidden, .default_value = 1024, .specialized = true}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-3)};
}

NESTOR_OPERATOR(gated_mlp, gated_mlp, "f32", "f16", "bf16");
}  // namespace
