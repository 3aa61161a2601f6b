// Attention whose scores are bounded: softmax(cap tanh(scale q k^T / cap)) v, as in Gemma 2 and Grok-1; plain or causal,
// and with gqa as for attention.
#include "attention_parts.h"

namespace {
/// Of Gemma 2. exp(50) and exp(-50) are normal in f32 and bf16, so that exponentials need not be relative to a maximum.
constexpr float kLargestCap = 50;

using namespace Halide;
using nestor::kernels::along;
using nestor::kernels::joined;
using nestor::kernels::wide;
using nestor::kernels::with_query;

nestor::HalideDefinition attention_softcap(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const bool causal = nestor::kernels::has_option(variant, "causal");
  const nestor::kernels::AttentionSizes sizes;
  const nestor::kernels::Heads heads(variant);
  const Param<float> scale = nestor::kernels::positive("scale"), cap = nestor::kernels::positive("cap", kLargestCap);
  ImageParam q(type, 4 + heads.grouped, "q"), k(type, 4, "k"), v(type, 4, "v");
  Var d("d"), j("j"), i("i");
  const nestor::kernels::Row row = with_query(i, heads.of_queries());
  const auto sees = [&](RDom& key) {
    if (causal) key.where(key <= i + sizes.keys - sizes.queries);
  };
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(along(e, row))); },
      [&](const Expr& e, const Expr& key) { return wide(k(joined({e, key}, heads.of_keys()))); });
  score(along(j, row)) = cap * tanh(dot(along(j, row)) * (scale / cap));
  const auto sums = nestor::kernels::softmax_sums(score, row, sizes.keys, sees, [&](const Expr& dim, const Expr& key) {
    return wide(v(joined({dim, key}, heads.of_keys())));
  });
  out(along(d, row)) = cast(type, sums.weighted(along(d, row)) / sums.total(row));
  nestor::HalideDefinition definition{.outputs = {{out, heads.queries({heads.width(sizes), sizes.queries}, sizes)}},
                                      .inputs = {{q, heads.queries({sizes.head_dim, sizes.queries}, sizes)},
                                                 {k, heads.keys({sizes.head_dim, sizes.keys}, sizes)},
                                                 {v, heads.keys({heads.width(sizes), sizes.keys}, sizes)}},
                                      .sizes = heads.sizes(sizes),
                                      .scalars = {{scale, 0.125}, {cap, kLargestCap}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (causal) definition.require = {sizes.keys >= sizes.queries};
  return definition;
}

NESTOR_OPERATOR(attention_softcap, attention_softcap, nestor::kernels::variants({"", "causal", "gqa", "causal.gqa"}));
}  // namespace
