// Softmaxes by hand: weights that a mask makes 0, and extrema that are kept finite, for rows of nothing but -inf.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>

namespace nestor::samples {

/// out[i] = sum over j of select(c[i] = c[j], exp(s[i, j] - m[i]), 0) v[j] / max(l[i], 1e-20), where s = select(c[i] = c[j], x, hidden).
inline Nest hidden_weights(double hidden, const std::string& other = "c[j]") {
  const std::string row = "0 <= i < R", points = row + " and 0 <= j < R";
  const ScalarExpr power = apply(ScalarOp::exp, read(2) - read(3));
  const auto where_seen = [](const ScalarExpr& seen, double otherwise) {
    const ScalarExpr same = ScalarExpr::make(ScalarOp::eq, {read(0, ElementType::i32), read(1, ElementType::i32)});
    return ScalarExpr::make(ScalarOp::select, {same, seen, number(otherwise)});
  };
  return NestBuilder("hidden_weights", {{"R", 6}})
      .tensor("x", TensorRole::input, {"R", "R"})
      .tensor("v", TensorRole::input, {"R"})
      .tensor("c", TensorRole::input, {"R"}, ElementType::i32)
      .tensor("s", TensorRole::temporary, {"R", "R"})
      .tensor("m", TensorRole::temporary, {"R"})
      .tensor("p", TensorRole::temporary, {"R", "R"})
      .tensor("l", TensorRole::temporary, {"R"})
      .tensor("a", TensorRole::temporary, {"R"})
      .tensor("out", TensorRole::output, {"R"})
      .statement("s[i, j] : " + points, "s[i, j]", {"c[i]", "c[j]", "x[i, j]"}, where_seen(read(2), hidden))
      .statement("m_init[i] : " + row, "m[i]", {}, number(-infinity()))
      .statement("m_max[i, j] : " + points, "m[i]", {"s[i, j]"}, read(0), ReductionOp::max)
      .statement("p[i, j] : " + points, "p[i, j]", {"c[i]", other, "s[i, j]", "m[i]"}, where_seen(power, 0))
      .statement("l_init[i] : " + row, "l[i]", {}, number(0))
      .statement("l_sum[i, j] : " + points, "l[i]", {"p[i, j]"}, read(0), ReductionOp::add)
      .statement("a_init[i] : " + row, "a[i]", {}, number(0))
      .statement("a_sum[i, j] : " + points, "a[i]", {"p[i, j]", "v[j]"}, read(0) * read(1), ReductionOp::add)
      .statement("out[i] : " + row, "out[i]", {"a[i]", "l[i]"},
                 read(0) / ScalarExpr::make(ScalarOp::max, {read(1), number(1e-20)}))
      .build();
}

/// out[i] = sum over j of exp(x[i, j] - safe[i]), where safe is m, or a number where m is -inf.
inline Nest safe_rows(const ScalarExpr& safe) {
  const std::string row = "0 <= i < R", points = row + " and 0 <= j < K";
  return NestBuilder("safe_rows", {{"R", 5}, {"K", 7}})
      .tensor("x", TensorRole::input, {"R", "K"})
      .tensor("m", TensorRole::temporary, {"R"})
      .tensor("safe", TensorRole::temporary, {"R"})
      .tensor("out", TensorRole::output, {"R"})
      .statement("m_init[i] : " + row, "m[i]", {}, number(-infinity()))
      .statement("m_max[i, j] : " + points, "m[i]", {"x[i, j]"}, read(0), ReductionOp::max)
      .statement("safe[i] : " + row, "safe[i]", {"m[i]"}, safe)
      .statement("out_init[i] : " + row, "out[i]", {}, number(0))
      .statement("out_sum[i, j] : " + points, "out[i]", {"x[i, j]", "safe[i]"}, apply(ScalarOp::exp, read(0) - read(1)),
                 ReductionOp::add)
      .build();
}

}  // namespace nestor::samples
