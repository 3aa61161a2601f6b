// sum over keys j <= p of scale q_i k_j decay_h^(p - j) v_j with p = i + keys - queries (Y. Sun et al., Retentive Network, 2023):
// two products with a decay between them and no softmax. log_decay holds log(decay_h); what lies above 0 counts as 0.
#include "attention_parts.h"

namespace {
using namespace Halide;
using nestor::kernels::wide;

// Scores are sums, not averages as after a softmax: where they are rounded to 16 bits, results are further off.
constexpr double kUnnormalised = 4;

nestor::HalideDefinition retention(const std::string& variant) {
  const Type type = nestor::kernels::element_of(variant);
  const nestor::kernels::AttentionSizes sizes;
  Param<float> scale("scale");
  ImageParam q(type, 4, "q"), k(type, 4, "k"), v(type, 4, "v"), log_decay(Float(32), 1, "log_decay");
  Var d("d"), j("j"), i("i"), h("h"), b("b");
  const nestor::kernels::Row row{i, h, b};
  const Expr position = i + sizes.keys - sizes.queries;
  Func score("score"), out("out");
  const Func dot = nestor::kernels::dot_product(
      "dot", row, sizes.head_dim, [&](const Expr& e) { return wide(q(e, i, h, b)); },
      [&](const Expr& e, const Expr& key) { return wide(k(e, key, h, b)); });
  score(j, i, h, b) = dot(j, i, h, b) * scale * exp(min(log_decay(h), 0.0f) * wide(position - j));
  const Func weighted = nestor::kernels::weighted_sum(
      "weighted", score, row, sizes.keys, [&](RDom& key) { key.where(key <= position); },
      [&](const Expr& dim, const Expr& key) { return wide(v(dim, key, h, b)); });
  out(d, i, h, b) = cast(type, weighted(d, i, h, b));
  return {.outputs = {{out, sizes.query()}},
          .inputs = {{q, sizes.query()}, {k, sizes.key()}, {v, sizes.key()}, {log_decay, {sizes.heads}}},
          .sizes = sizes.sizes(),
          .scalars = {{scale, 0.125}},
          .require = {sizes.keys >= sizes.queries},
          .tolerance = kUnnormalised * nestor::kernels::tolerance_for(variant, 1e-4)};
}

NESTOR_OPERATOR(retention, retention, "f32", "f16", "bf16");
}  // namespace
