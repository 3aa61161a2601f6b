// softmax(scale q k^T + bias) v with a bias for every score; plain or causal. A row whose scores are all minus infinity sees
// nothing: its result is 0, as PyTorch has it. Scores of less than -1e30 count as minus infinity.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition attention_bias(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const bool causal = nestor::kernels::has_option(variant, "causal");
  const nestor::kernels::AttentionSizes sizes;
  const Param<float> scale = nestor::kernels::positive("scale");
  ImageParam q(type, 4, "q"), k(type, 4, "k"), v(type, 4, "v"), bias(type, 4, "bias");
  Var d("d"), j("j"), i("i"), h("h"), b("b");
  const nestor::kernels::Row row{i, h, b};
  const auto sees = [&](RDom& key) {
    if (causal) key.where(key <= i + sizes.keys - sizes.queries);
  };
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(e, i, h, b)); },
      [&](const Expr& e, const Expr& key) { return wide(k(e, key, h, b)); });
  score(j, i, h, b) = dot(j, i, h, b) * scale + wide(bias(j, i, h, b));
  const auto sums = nestor::kernels::softmax_sums(
      score, row, sizes.keys, sees, [&](const Expr& dim, const Expr& key) { return wide(v(dim, key, h, b)); }, "", -1e30f);
  // A row that sees anything has a total of at least 1, from its largest score.
  out(d, i, h, b) = cast(type, sums.weighted(d, i, h, b) / max(sums.total(i, h, b), 1.0f));
  nestor::HalideDefinition definition{.outputs = {{out, sizes.query()}},
                                      .inputs = {{q, sizes.query()},
                                                 {k, sizes.key()},
                                                 {v, sizes.key()},
                                                 {bias, {sizes.keys, sizes.queries, sizes.heads, sizes.batch}}},
                                      .sizes = sizes.sizes(),
                                      .scalars = {{scale, 0.125}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (causal) definition.require = {sizes.keys >= sizes.queries};
  return definition;
}

NESTOR_OPERATOR(attention_bias, attention_bias, nestor::kernels::variants({"", "causal"}));
}  // namespace
