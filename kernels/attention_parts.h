// What operators with rows of scores share: products of queries and keys, and softmax(score) v without its last division.
#pragma once

#include <functional>
#include <limits>

#include "operator.h"

namespace nestor::kernels {

/// A row of scores: its query i first, then whatever lies around it (heads, batch, ...), innermost first.
using Row = std::vector<Halide::Var>;

/// `first`, then the row: how tensors of keys or head dims by row are indexed.
template <class First>
std::vector<Halide::Expr> along(const First& first, const Row& row) {
  std::vector<Halide::Expr> index{first};
  index.insert(index.end(), row.begin(), row.end());
  return index;
}
inline std::vector<Halide::Var> along(const Halide::Var& first, const Row& row) {
  std::vector<Halide::Var> index{first};
  index.insert(index.end(), row.begin(), row.end());
  return index;
}

/// A scalar that callers must give a positive value, at most `most`: a positive factor of scores is one of their maximum too.
inline Halide::Param<float> positive(const std::string& name, float most = std::numeric_limits<float>::infinity()) {
  Halide::Param<float> param(name);
  param.set_min_value(std::numeric_limits<float>::min());
  if (most < std::numeric_limits<float>::infinity()) param.set_max_value(most);
  return param;
}

/// The row of query i in the heads of the rest.
inline Row with_query(const Halide::Var& i, const Row& heads) {
  Row row{i};
  row.insert(row.end(), heads.begin(), heads.end());
  return row;
}

/// Narrows a reduction over keys to those that the query of the row sees.
using Sees = std::function<void(Halide::RDom& key)>;
inline void sees_all(Halide::RDom& /*key*/) {}

/// dot(j, row) = sum over e < head_dim of q(e) k(e, j); `query(e)` and `key(e, j)` are elements at the row, in f32.
Halide::Func dot_product(const std::string& name, const Row& row, const Halide::Expr& head_dim,
                         const std::function<Halide::Expr(Halide::Expr e)>& query,
                         const std::function<Halide::Expr(Halide::Expr e, Halide::Expr j)>& key);

/// weighted(d, row) = sum over seen keys t < keys of weight(t, row) value(d, t).
Halide::Func weighted_sum(const std::string& name, const Halide::Func& weight, const Row& row, const Halide::Expr& keys,
                          const Sees& sees, const std::function<Halide::Expr(Halide::Expr d, Halide::Expr t)>& value);

/// softmax(score) v is weighted / total; log(total) + largest is the logarithm of the sum of exponentials.
struct SoftmaxSums {
  Halide::Func largest, total, weighted;
};

/// The sums for every row of score(j, row), over the keys j < keys that are seen. Names get `suffix`. `largest` is at least
/// `floor`: with a finite one, a row without other scores than minus infinity has sums of 0.
SoftmaxSums softmax_sums(const Halide::Func& score, const Row& row, const Halide::Expr& keys, const Sees& sees,
                         const std::function<Halide::Expr(Halide::Expr d, Halide::Expr t)>& value, const std::string& suffix = "",
                         const Halide::Expr& floor = Halide::Float(32).min());

/// Sizes of queries, keys and heads as every operator of this kind has them by default.
struct AttentionSizes {
  Halide::Param<int> batch{"batch"}, heads{"heads"}, queries{"queries"}, keys{"keys"}, head_dim{"head_dim"};
  std::vector<Halide::Expr> query() const { return {head_dim, queries, heads, batch}; }
  std::vector<Halide::Expr> key() const { return {head_dim, keys, heads, batch}; }
  std::vector<HalideSize> sizes() const;
};

/// Heads of queries and of keys: [heads] for both, or, with the option `gqa`, groups of query heads that share a head of keys
/// and values, [key_heads, group] and [key_heads]; values have a head size of their own then.
struct Heads {
  explicit Heads(const std::string& variant);

  bool grouped;
  Halide::Param<int> key_heads{"key_heads"}, group{"group"}, value_dim{"value_dim"};

  /// Variables of a query's head and batch, and of the head of its keys, innermost first.
  Row of_queries() const;
  std::vector<Halide::Expr> of_keys() const;
  /// Extents of a tensor with an element for every query head, innermost first.
  std::vector<Halide::Expr> query_heads(const AttentionSizes& sizes) const;
  /// Extents of a tensor of queries or keys, which begins with `row`, innermost first.
  std::vector<Halide::Expr> queries(std::vector<Halide::Expr> row, const AttentionSizes& sizes) const;
  std::vector<Halide::Expr> keys(std::vector<Halide::Expr> row, const AttentionSizes& sizes) const;
  /// Elements of a value.
  Halide::Expr width(const AttentionSizes& sizes) const {
    return grouped ? Halide::Expr(value_dim) : Halide::Expr(sizes.head_dim);
  }
  /// The sizes of an operator with these heads.
  std::vector<HalideSize> sizes(const AttentionSizes& sizes) const;

 private:
  Halide::Expr count(const AttentionSizes& sizes) const { return grouped ? Halide::Expr(key_heads) : Halide::Expr(sizes.heads); }
};

/// `first`, then `rest`: places and extents, innermost first.
std::vector<Halide::Expr> joined(std::vector<Halide::Expr> first, const std::vector<Halide::Expr>& rest);

}  // namespace nestor::kernels
