// Softmax sums over scores in which a large negative number stands where a condition on indices hides them.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// Sees column 0 = j of row 1 = i.
inline ScalarExpr sees_before() { return ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(0), ScalarExpr::index(1)}); }

/// Sees a window: index 2 is its end, i - 2.
inline ScalarExpr sees_near() {
  return ScalarExpr::make(ScalarOp::logical_and,
                          {sees_before(), ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(2), ScalarExpr::index(0)})});
}

struct MaskedScores {
  ScalarExpr seen = sees_before();
  double hidden = -1e9;    ///< what stands where nothing is seen
  ScalarExpr weight{};     ///< of score 0 and maximum 1; none: exp(score - maximum)
  bool added = false;      ///< s = x + (seen ? 0 : hidden)
  bool quotients = false;  ///< weights over their sum are stored
  std::string window = "i - 2";
};

/// s[i, j] = seen ? x[i, j] : hidden, out[i, d] = sum over j of softmax(s)[i, j] v[j, d].
inline Nest masked_scores(const MaskedScores& how = {}) {
  const std::string row = " : 0 <= i < N", pair = row + " and 0 <= j < N", element = row + " and 0 <= d < D";
  const ScalarExpr weight = how.weight.defined() ? how.weight : apply(ScalarOp::exp, read(0) - read(1));
  const auto masked = [&](const ScalarExpr& value) {
    return ScalarExpr::make(ScalarOp::select, {how.seen, value, number(how.hidden)});
  };
  NestBuilder nest("masked_scores", {{"N", 6}, {"D", 2}});
  nest.tensor("x", TensorRole::input, {"N", "N"}).tensor("v", TensorRole::input, {"N", "D"});
  for (const char* of_pair : {"s", "p"}) nest.tensor(of_pair, TensorRole::temporary, {"N", "N"});
  if (how.quotients) nest.tensor("chance", TensorRole::temporary, {"N", "N"});
  for (const char* of_row : {"top", "total"}) nest.tensor(of_row, TensorRole::temporary, {"N"});
  nest.tensor("sum", TensorRole::temporary, {"N", "D"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("s[i, j]" + pair, "s[i, j]", {"x[i, j]"}, how.added ? read(0) + masked(number(0)) : masked(read(0)), {},
                 {"j", "i", how.window})
      .statement("top_init[i]" + row, "top[i]", {}, number(-infinity()))
      .statement("top[i, j]" + pair, "top[i]", {"s[i, j]"}, read(0), ReductionOp::max)
      .statement("p[i, j]" + pair, "p[i, j]", {"s[i, j]", "top[i]"}, weight)
      .statement("total_init[i]" + row, "total[i]", {}, number(0))
      .statement("total[i, j]" + pair, "total[i]", {"p[i, j]"}, read(0), ReductionOp::add);
  if (how.quotients) nest.statement("chance[i, j]" + pair, "chance[i, j]", {"p[i, j]", "total[i]"}, read(0) / read(1));
  nest.statement("sum_init[i, d]" + element, "sum[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + element + " and 0 <= j < N", "sum[i, d]",
                 {how.quotients ? "chance[i, j]" : "p[i, j]", "v[j, d]"}, read(0) * read(1), ReductionOp::add);
  return nest
      .statement("out[i, d]" + element, "out[i, d]", {"sum[i, d]", "total[i]"},
                 how.quotients ? read(0) + number(0) * read(1) : read(0) / read(1))
      .build();
}

/// The same of queries and keys in bf16, heads of 64, with scores up to some hundreds.
inline Nest masked_attention_scores(double hidden = -1e9, const ScalarExpr& seen = sees_before(), double scale = 1) {
  const std::string row = " : 0 <= h < H and 0 <= i < N", pair = row + " and 0 <= j < N", element = row + " and 0 <= d < 64";
  const auto wide = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::bf16)); };
  NestBuilder nest("masked_attention_scores", {{"H", 2}, {"N", 5}});
  for (const char* input : {"q", "k", "v"}) nest.tensor(input, TensorRole::input, {"H", "N", "64"}, ElementType::bf16);
  for (const char* of_pair : {"dot", "s", "p"}) nest.tensor(of_pair, TensorRole::temporary, {"H", "N", "N"});
  for (const char* of_row : {"top", "total"}) nest.tensor(of_row, TensorRole::temporary, {"H", "N"});
  return nest.tensor("sum", TensorRole::temporary, {"H", "N", "64"})
      .tensor("out", TensorRole::output, {"H", "N", "64"}, ElementType::bf16)
      .statement("dot_init[h, i, j]" + pair, "dot[h, i, j]", {}, number(0))
      .statement("dot[h, i, j, e]" + pair + " and 0 <= e < 64", "dot[h, i, j]", {"q[h, i, e]", "k[h, j, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("s[h, i, j]" + pair, "s[h, i, j]", {"dot[h, i, j]"},
                 ScalarExpr::make(ScalarOp::select, {seen, read(0) * number(scale), number(hidden)}), {}, {"j", "i", "i - 100"})
      .statement("top_init[h, i]" + row, "top[h, i]", {}, number(-infinity()))
      .statement("top[h, i, j]" + pair, "top[h, i]", {"s[h, i, j]"}, read(0), ReductionOp::max)
      .statement("p[h, i, j]" + pair, "p[h, i, j]", {"s[h, i, j]", "top[h, i]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("total_init[h, i]" + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j]" + pair, "total[h, i]", {"p[h, i, j]"}, read(0), ReductionOp::add)
      .statement("sum_init[h, i, d]" + element, "sum[h, i, d]", {}, number(0))
      .statement("sum[h, i, d, j]" + element + " and 0 <= j < N", "sum[h, i, d]", {"p[h, i, j]", "v[h, j, d]"}, read(0) * wide(1),
                 ReductionOp::add)
      .statement("out[h, i, d]" + element, "out[h, i, d]", {"sum[h, i, d]", "total[h, i]"},
                 ScalarExpr::cast(ElementType::bf16, read(0) / read(1)))
      .build();
}

}  // namespace nestor::samples
