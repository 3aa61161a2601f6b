// softmax(scale q k^T) v for every batch and head; plain, causal, or causal within a sliding window.
// Query i stands at key position i + keys - queries, so that the last query sees the last key.
#include "operator.h"

namespace {
using namespace Halide;

nestor::HalideDefinition attention(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const bool window_mask = nestor::kernels::has_option(variant, "window");
  const bool causal_mask = window_mask || nestor::kernels::has_option(variant, "causal");
  Param<int> batch("batch"), heads("heads"), queries("queries"), keys("keys"), head_dim("head_dim"), window("window");
  Param<float> scale("scale");
  ImageParam q(type, 4, "q"), k(type, 4, "k"), v(type, 4, "v");
  Var d("d"), j("j"), i("i"), h("h"), b("b");
  RDom e(0, head_dim, "e"), r(0, keys, "r"), s(0, keys, "s"), t(0, keys, "t");
  for (RDom* seen : {&r, &s, &t}) {
    if (causal_mask) seen->where(*seen <= i + keys - queries);
    if (window_mask) seen->where(*seen > i + keys - queries - window);
  }
  Func dot("dot"), score("score"), largest("largest"), power("power"), total("total"), weighted("weighted"), out("out");
  using nestor::kernels::wide;
  dot(j, i, h, b) = 0.0f;
  dot(j, i, h, b) += wide(q(e, i, h, b)) * wide(k(e, j, h, b));
  score(j, i, h, b) = dot(j, i, h, b) * scale;
  largest(i, h, b) = Float(32).min();
  largest(i, h, b) = max(largest(i, h, b), score(r, i, h, b));
  power(j, i, h, b) = exp(score(j, i, h, b) - largest(i, h, b));
  total(i, h, b) = 0.0f;
  total(i, h, b) += power(s, i, h, b);
  weighted(d, i, h, b) = 0.0f;
  weighted(d, i, h, b) += power(t, i, h, b) * wide(v(d, t, h, b));
  out(d, i, h, b) = cast(type, weighted(d, i, h, b) / total(i, h, b));
  nestor::HalideDefinition definition{.outputs = {{out, {head_dim, queries, heads, batch}}},
                                      .inputs = {{q, {head_dim, queries, heads, batch}},
                                                 {k, {head_dim, keys, heads, batch}},
                                                 {v, {head_dim, keys, heads, batch}}},
                                      .sizes = {{batch, 2},
                                                {heads, 8},
                                                {queries, 1024},
                                                {keys, 1024},
                                                {.param = head_dim, .default_value = 64, .specialized = true}},
                                      .scalars = {{scale, 0.125}},
                                      .tolerance = nestor::kernels::tolerance_for(variant, 1e-4)};
  if (causal_mask) definition.require = {keys >= queries};
  if (window_mask) definition.sizes.push_back({window, 256});
  return definition;
}

NESTOR_OPERATOR(attention, attention, "f32", "f16", "bf16", "causal.f32", "causal.f16", "causal.bf16", "window.f32", "window.f16",
                "window.bf16");
}  // namespace
