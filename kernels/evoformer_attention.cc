// Gated attention along the rows of a sequence alignment (J. Jumper et al., AlphaFold, 2021, algorithm 7):
// sigmoid(gate) softmax(scale q k^T + mask + pair) v, where mask is for a key of a row and pair for two positions of all rows.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition evoformer_attention(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  Param<int> batch("batch"), rows("rows"), heads("heads"), n("n"), head_dim("head_dim");
  const Param<float> scale = nestor::kernels::positive("scale");
  ImageParam q(type, 5, "q"), k(type, 5, "k"), v(type, 5, "v"), gate(type, 5, "gate"), mask(type, 3, "mask"),
      pair(type, 4, "pair");
  Var d("d"), j("j"), i("i"), h("h"), m("m"), b("b");
  const nestor::kernels::Row row{i, h, m, b};
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, head_dim, [&](const Expr& e) { return wide(q(e, i, h, m, b)); },
      [&](const Expr& e, const Expr& key) { return wide(k(e, key, h, m, b)); });
  score(j, i, h, m, b) = dot(j, i, h, m, b) * scale + wide(mask(j, m, b)) + wide(pair(j, i, h, b));
  const auto sums = nestor::kernels::softmax_sums(score, row, n, nestor::kernels::sees_all,
                                                  [&](const Expr& dim, const Expr& key) { return wide(v(dim, key, h, m, b)); });
  const Expr open = 1.0f / (1.0f + exp(-wide(gate(d, i, h, m, b))));
  out(d, i, h, m, b) = cast(type, open * (sums.weighted(d, i, h, m, b) / sums.total(i, h, m, b)));
  const std::vector<Expr> heads_of_rows{head_dim, n, heads, rows, batch};
  return {.outputs = {{out, heads_of_rows}},
          .inputs = {{q, heads_of_rows},
                     {k, heads_of_rows},
                     {v, heads_of_rows},
                     {gate, heads_of_rows},
                     {mask, {n, rows, batch}},
                     {pair, {n, n, heads, batch}}},
          .sizes = {{batch, 1}, {rows, 64}, {heads, 4}, {n, 256}, {.param = head_dim, .default_value = 32, .specialized = true}},
          .scalars = {{scale, 0.17677669}},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(evoformer_attention, evoformer_attention, "f32", "f16", "bf16");
}  // namespace
