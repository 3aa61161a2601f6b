// Causal attention with linear biases (O. Press, N. Smith, M. Lewis, 2022): slope_h (j - p) is added to the score of key j and the
// query at key position p = i + keys - queries. gqa: as for attention, with a slope for every query head.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::along;
using nestor::kernels::joined;
using nestor::kernels::wide;
using nestor::kernels::with_query;

nestor::HalideDefinition attention_alibi(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::AttentionSizes sizes;
  const nestor::kernels::Heads heads(variant);
  const Param<float> scale = nestor::kernels::positive("scale");
  ImageParam q(type, 4 + heads.grouped, "q"), k(type, 4, "k"), v(type, 4, "v"), slope(Float(32), 1 + heads.grouped, "slope");
  Var d("d"), j("j"), i("i");
  const nestor::kernels::Row query_heads = heads.of_queries(), row = with_query(i, query_heads);
  const Expr position = i + sizes.keys - sizes.queries;
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(along(e, row))); },
      [&](const Expr& e, const Expr& key) { return wide(k(joined({e, key}, heads.of_keys()))); });
  const std::vector<Expr> head(query_heads.begin(), query_heads.end() - 1);
  score(along(j, row)) = dot(along(j, row)) * scale + slope(head) * wide(j - position);
  const auto sums = nestor::kernels::softmax_sums(
      score, row, sizes.keys, [&](RDom& key) { key.where(key <= position); },
      [&](const Expr& dim, const Expr& key) { return wide(v(joined({dim, key}, heads.of_keys()))); });
  out(along(d, row)) = cast(type, sums.weighted(along(d, row)) / sums.total(row));
  return {.outputs = {{out, heads.queries({heads.width(sizes), sizes.queries}, sizes)}},
          .inputs = {{q, heads.queries({sizes.head_dim, sizes.queries}, sizes)},
                     {k, heads.keys({sizes.head_dim, sizes.keys}, sizes)},
                     {v, heads.keys({heads.width(sizes), sizes.keys}, sizes)},
                     {slope, heads.query_heads(sizes)}},
          .sizes = heads.sizes(sizes),
          .scalars = {{scale, 0.125}},
          .require = {sizes.keys >= sizes.queries},
          .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(attention_alibi, attention_alibi, nestor::kernels::variants({"", "gqa"}));
}  // namespace
