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
                         const std::function<Expr(Expr, Expr)>& value, const std::string& suffix, const Expr& floor) {
  const Var j("j");
  RDom r(0, keys, "r"), s(0, keys, "s");
  sees(r);
  sees(s);
  Func largest("largest" + suffix), power("power" + suffix), total("total" + suffix);
  largest(row) = floor;
  largest(row) = max(largest(row), score(along(Expr(r), row)));
  power(along(j, row)) = exp(score(along(j, row)) - largest(row));
  total(row) = 0.0f;
  total(row) += power(along(Expr(s), row));
  return {largest, total, weighted_sum("weighted" + suffix, power, row, keys, sees, value)};
}

std::vector<HalideSize> AttentionSizes::sizes() const {
  return {{batch, 2}, {heads, 8}, {queries, 1024}, {keys, 1024}, {.param = head_dim, .default_value = 64, .specialized = true}};
}

Heads::Heads(const std::string& variant) : grouped(has_option(variant, "gqa")) {}

Row Heads::of_queries() const {
  const Var g("g"), h("h"), b("b");
  return grouped ? Row{g, h, b} : Row{h, b};
}

std::vector<Expr> Heads::of_keys() const { return {Var("h"), Var("b")}; }

std::vector<Expr> Heads::query_heads(const AttentionSizes& sizes) const {
  return grouped ? std::vector<Expr>{group, key_heads} : std::vector<Expr>{sizes.heads};
}

std::vector<Expr> Heads::queries(std::vector<Expr> row, const AttentionSizes& sizes) const {
  if (grouped) row.emplace_back(group);
  return keys(std::move(row), sizes);
}

std::vector<Expr> Heads::keys(std::vector<Expr> row, const AttentionSizes& sizes) const {
  return joined(std::move(row), {count(sizes), sizes.batch});
}

std::vector<HalideSize> Heads::sizes(const AttentionSizes& sizes) const {
  std::vector<HalideSize> all = sizes.sizes();
  if (!grouped) return all;
  all[1] = {key_heads, 2};
  all.push_back({group, 4});
  all.push_back({.param = value_dim, .default_value = 64, .specialized = true});
  return all;
}

std::vector<Expr> joined(std::vector<Expr> first, const std::vector<Expr>& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

}  // namespace nestor::kernels
