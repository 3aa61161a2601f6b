// softmax(scale q1 k1^T) v - lambda softmax(scale q2 k2^T) v (T. Ye et al., Differential Transformer, 2024); plain or causal.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

nestor::HalideDefinition differential_attention(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const bool causal = nestor::kernels::has_option(variant, "causal");
  const nestor::kernels::AttentionSizes sizes;
  Param<int> value_dim("value_dim");
  const Param<float> scale = nestor::kernels::positive("scale");
  Param<float> lambda("lambda");
  ImageParam v(type, 4, "v");
  Var d("d"), j("j"), i("i"), h("h"), b("b");
  const nestor::kernels::Row row{i, h, b};
  const auto sees = [&](RDom& key) {
    if (causal) key.where(key <= i + sizes.keys - sizes.queries);
  };
  const std::vector<Expr> values{value_dim, sizes.keys, sizes.heads, sizes.batch};
  nestor::HalideDefinition definition{.sizes = sizes.sizes(),
                                      .scalars = {{scale, 0.125}, {lambda, 0.8}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  std::vector<nestor::kernels::SoftmaxSums> maps;
  for (const std::string map : {"1", "2"}) {
    ImageParam q(type, 4, "q" + map), k(type, 4, "k" + map);
    definition.inputs.push_back({q, sizes.query()});
    definition.inputs.push_back({k, sizes.key()});
    Func score("score" + map);
    const Func dot = nestor::kernels::dot_product(
        "dot" + map, row, sizes.head_dim, [&](const Expr& e) { return wide(q(e, i, h, b)); },
        [&](const Expr& e, const Expr& key) { return wide(k(e, key, h, b)); });
    score(j, i, h, b) = dot(j, i, h, b) * scale;
    maps.push_back(nestor::kernels::softmax_sums(
        score, row, sizes.keys, sees, [&](const Expr& dim, const Expr& key) { return wide(v(dim, key, h, b)); }, map));
  }
  Func out("out");
  const auto attended = [&](const nestor::kernels::SoftmaxSums& sums) { return sums.weighted(d, i, h, b) / sums.total(i, h, b); };
  out(d, i, h, b) = cast(type, attended(maps[0]) - lambda * attended(maps[1]));
  definition.inputs.push_back({v, values});
  definition.outputs = {{out, {value_dim, sizes.queries, sizes.heads, sizes.batch}}};
  definition.sizes.push_back({.param = value_dim, .default_value = 128, .specialized = true});
  if (causal) definition.require = {sizes.keys >= sizes.queries};
  return definition;
}

NESTOR_OPERATOR(differential_attention, differential_attention, nestor::kernels::variants({"", "causal"}));
}  // namespace
