// Causal attention with linear biases (O. Press, N. Smith, M. Lewis, 2022): slope_h (j - p) is added to the score of key j and the
// query at key position p = i + keys - queries.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition attention_alibi(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::AttentionSizes sizes;
  const Param<float> scale = nestor::kernels::positive("scale");
  ImageParam q(type, 4, "q"), k(type, 4, "k"), v(type, 4, "v"), slope(Float(32), 1, "slope");
  Var d("d"), j("j"), i("i"), h("h"), b("b");
  const nestor::kernels::Row row{i, h, b};
  const Expr position = i + sizes.keys - sizes.queries;
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(e, i, h, b)); },
      [&](const Expr& e, const Expr& key) { return wide(k(e, key, h, b)); });
  score(j, i, h, b) = dot(j, i, h, b) * scale + slope(h) * wide(j - position);
  const auto sums = nestor::kernels::softmax_sums(
      score, row, sizes.keys, [&](RDom& key) { key.where(key <= position); },
      [&](const Expr& dim, const Expr& key) { return wide(v(dim, key, h, b)); });
  out(d, i, h, b) = cast(type, sums.weighted(d, i, h, b) / sums.total(i, h, b));
  return {.outputs = {{out, sizes.query()}},
          .inputs = {{q, sizes.query()}, {k, sizes.key()}, {v, sizes.key()}, {slope, {sizes.heads}}},
          .sizes = sizes.sizes(),
          .scalars = {{scale, 0.125}},
          .require = {sizes.keys >= sizes.queries},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(attention_alibi, attention_alibi, "f32", "f16", "bf16");
}  // namespace
