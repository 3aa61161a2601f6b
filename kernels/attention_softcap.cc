// Attention whose scores are bounded: softmax(cap tanh(scale q k^T / cap)) v, as in Gemma 2; plain or causal.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition attention_softcap(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const bool causal = nestor::kernels::has_option(variant, "causal");
  const nestor::kernels::AttentionSizes sizes;
  const Param<float> scale = nestor::kernels::positive("scale"), cap = nestor::kernels::positive("cap");
  ImageParam q(type, 4, "q"), k(type, 4, "k"), v(type, 4, "v");
  Var d("d"), j("j"), i("i"), h("h"), b("b");
  const nestor::kernels::Row row{i, h, b};
  const auto sees = [&](RDom& key) {
    if (causal) key.where(key <= i + sizes.keys - sizes.queries);
  };
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(e, i, h, b)); },
      [&](const Expr& e, const Expr& key) { return wide(k(e, key, h, b)); });
  score(j, i, h, b) = cap * tanh(dot(j, i, h, b) * (scale / cap));
  const auto sums = nestor::kernels::softmax_sums(score, row, sizes.keys, sees,
                                                  [&](const Expr& dim, const Expr& key) { return wide(v(dim, key, h, b)); });
  out(d, i, h, b) = cast(type, sums.weighted(d, i, h, b) / sums.total(i, h, b));
  nestor::HalideDefinition definition{.outputs = {{out, sizes.query()}},
                                      .inputs = {{q, sizes.query()}, {k, sizes.key()}, {v, sizes.key()}},
                                      .sizes = sizes.sizes(),
                                      .scalars = {{scale, 0.125}, {cap, 50}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (causal) definition.require = {sizes.keys >= sizes.queries};
  return definition;
}

NESTOR_OPERATOR(attention_softcap, attention_softcap, nestor::kernels::variants({"", "causal"}));
}  // namespace
