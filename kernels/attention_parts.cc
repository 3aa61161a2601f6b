// The naive sums that operators with rows of scores share.
#include "attention_parts.h"

namespace nestor::kernels {

using Halide::Expr;
using Halide::Func;
using Halide::RDom;
using Halide::Var;

Func dot_product(const std::string& name, const Row& row, const Expr& head_dim, const std::function<Expr(Expr)>& query,
                 const std::function<Expr(Expr, Expr)>& key) {
  const Var j("j");
  const RDom e(0, head_dim, "e");
  Func dot(name);
  dot(along(j, row)) = 0.0f;
  dot(along(j, row)) += query(e) * key(e, j);
  return dot;
}

Func weighted_sum(const std::string& name, const Func& weight, const Row& row, const Expr& keys, const Sees& sees,
                  const std::function<Expr(Expr, Expr)>& value) {
  const Var d("d");
  RDom t(0, keys, "t");
  sees(t);
  Func weighted(name);
  weighted(along(d, row)) = 0.0f;
  weighted(along(d, row)) += weight(along(Expr(t), row)) * value(d, t);
  return weighted;
}

SoftmaxSums softmax_sums(const Func& score, const Row& row, const Expr& keys, const Sees& sees,
                         const std::function<Expr(Expr, Expr)>& value, const std::string& suffix) {
  const Var j("j");
  RDom r(0, keys, "r"), s(0, keys, "s");
  sees(r);
  sees(s);
  Func largest("largest" + suffix), power("power" + suffix), total("total" + suffix);
  largest(row) = Halide::Float(32).min();
  largest(row) = max(largest(row), score(along(Expr(r), row)));
  power(along(j, row)) = exp(score(along(j, row)) - largest(row));
  total(row) = 0.0f;
  total(row) += power(along(Expr(s), row));
  return {largest, total, weighted_sum("weighted" + suffix, power, row, keys, sees, value)};
}

std::vector<HalideSize> AttentionSizes::sizes() const {
  return {{batch, 2}, {heads, 8}, {queries, 1024}, {keys, 1024}, {.param = head_dim, .default_value = 64, .specialized = true}};
}

}  // namespace nestor::kernels
