// Nests that algebra rules rewrite: the same operators written in different ways.
#pragma once

#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

namespace nestor::samples {

/// Softmax over columns with the exponentials inlined into their sums.
inline Nest inlined_softmax_sum(double factor = 1) {
  const ScalarExpr phi = apply(ScalarOp::exp, (read(0) - read(1)) * number(factor));
  return NestBuilder("inlined", {{"R", 4}, {"C", 7}, {"D", 3}})
      .tensor("S", TensorRole::input, {"R", "C"})
      .tensor("V", TensorRole::input, {"C", "D"})
      .tensor("Mx", TensorRole::temporary, {"R"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("PV", TensorRole::temporary, {"R", "D"})
      .tensor("O", TensorRole::output, {"R", "D"})
      .statement("Mx_init[i] : 0 <= i < R", "Mx[i]", {}, number(-infinity()))
      .statement("Mx_update[i, j] : 0 <= i < R and 0 <= j < C", "Mx[i]", {"S[i, j]"}, read(0), ReductionOp::max)
      .statement("L_init[i] : 0 <= i < R", "L[i]", {}, number(0))
      .statement("L_update[i, j] : 0 <= i < R and 0 <= j < C", "L[i]", {"S[i, j]", "Mx[i]"}, phi, ReductionOp::add)
      .statement("PV_init[i, d] : 0 <= i < R and 0 <= d < D", "PV[i, d]", {}, number(0))
      .statement("PV_update[i, d, j] : 0 <= i < R and 0 <= j < C and 0 <= d < D", "PV[i, d]", {"S[i, j]", "Mx[i]", "V[j, d]"},
                 phi * read(2), ReductionOp::add)
      .statement("O[i, d] : 0 <= i < R and 0 <= d < D", "O[i, d]", {"PV[i, d]", "L[i]"}, read(0) / read(1))
      .build();
}

/// Row softmax: exponentials are written once and read by the sum and by the result.
inline Nest softmax() {
  return NestBuilder("soft", {{"R", 4}, {"C", 7}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("Mx", TensorRole::temporary, {"R"})
      .tensor("E", TensorRole::temporary, {"R", "C"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("y", TensorRole::output, {"R", "C"})
      .statement("Mx_init[i] : 0 <= i < R", "Mx[i]", {}, number(-infinity()))
      .statement("Mx_update[i, j] : 0 <= i < R and 0 <= j < C", "Mx[i]", {"x[i, j]"}, read(0), ReductionOp::max)
      .statement("E[i, j] : 0 <= i < R and 0 <= j < C", "E[i, j]", {"x[i, j]", "Mx[i]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("L_init[i] : 0 <= i < R", "L[i]", {}, number(0))
      .statement("L_update[i, j] : 0 <= i < R and 0 <= j < C", "L[i]", {"E[i, j]"}, read(0), ReductionOp::add)
      .statement("y[i, j] : 0 <= i < R and 0 <= j < C", "y[i, j]", {"E[i, j]", "L[i]"}, read(0) / read(1))
      .build();
}

/// The square of each point's distance to the nearest of others, both ways. A distance is a sum of a few terms, of `terms` coordinates.
inline Nest nearest_points(const std::string& terms = "3", ElementType kept = ElementType::f32) {
  const std::string pair = "0 <= n < B and 0 <= i < N and 0 <= j < M";
  const ScalarExpr gap = read(0) - read(1), zero = ScalarExpr::constant(0.0, kept), apart = read(0, kept);
  const auto stored = [&](const ScalarExpr& value) {
    return kept == ElementType::f32 ? value : ScalarExpr::cast(ElementType::f32, value);
  };
  return NestBuilder("nearest", {{"B", 2}, {"N", 5}, {"M", 4}, {"C", 3}})
      .tensor("x", TensorRole::input, {"B", "N", terms})
      .tensor("y", TensorRole::input, {"B", "M", terms})
      .tensor("apart", TensorRole::temporary, {"B", "N", "M"}, kept)
      .tensor("to", TensorRole::output, {"B", "N"})
      .tensor("back", TensorRole::output, {"B", "M"})
      .statement("start[n, i, j] : " + pair, "apart[n, i, j]", {}, zero)
      .statement("apart[n, i, j, c] : " + pair + " and 0 <= c < " + terms, "apart[n, i, j]", {"x[n, i, c]", "y[n, j, c]"},
                 kept == ElementType::f32 ? gap * gap : ScalarExpr::cast(kept, gap * gap), ReductionOp::add)
      .statement("to_init[n, i] : 0 <= n < B and 0 <= i < N", "to[n, i]", {}, number(infinity()))
      .statement("to[n, i, j] : " + pair, "to[n, i]", {"apart[n, i, j]"}, stored(apart), ReductionOp::min)
      .statement("back_init[n, j] : 0 <= n < B and 0 <= j < M", "back[n, j]", {}, number(infinity()))
      .statement("back[n, j, i] : " + pair, "back[n, j]", {"apart[n, i, j]"}, stored(apart), ReductionOp::min)
      .build();
}

/// Attention whose probabilities are normalised before they meet the values.
inline Nest normalised_attention() {
  return NestBuilder("normalised", {{"R", 4}, {"C", 6}, {"D", 3}})
      .tensor("S", TensorRole::input, {"R", "C"})
      .tensor("V", TensorRole::input, {"C", "D"})
      .tensor("Mx", TensorRole::temporary, {"R"})
      .tensor("E", TensorRole::temporary, {"R", "C"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("P", TensorRole::temporary, {"R", "C"})
      .tensor("O", TensorRole::output, {"R", "D"})
      .statement("Mx_init[i] : 0 <= i < R", "Mx[i]", {}, number(-infinity()))
      .statement("Mx_update[i, j] : 0 <= i < R and 0 <= j < C", "Mx[i]", {"S[i, j]"}, read(0), ReductionOp::max)
      .statement("E[i, j] : 0 <= i < R and 0 <= j < C", "E[i, j]", {"S[i, j]", "Mx[i]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("L_init[i] : 0 <= i < R", "L[i]", {}, number(0))
      .statement("L_update[i, j] : 0 <= i < R and 0 <= j < C", "L[i]", {"E[i, j]"}, read(0), ReductionOp::add)
      .statement("P[i, j] : 0 <= i < R and 0 <= j < C", "P[i, j]", {"E[i, j]", "L[i]"}, read(0) / read(1))
      .statement("O_init[i, d] : 0 <= i < R and 0 <= d < D", "O[i, d]", {}, number(0))
      .statement("O_update[i, d, j] : 0 <= i < R and 0 <= d < D and 0 <= j < C", "O[i, d]", {"P[i, j]", "V[j, d]"},
                 read(0) * read(1), ReductionOp::add)
      .build();
}

/// Mean and variance with the divisions after the sums. The mean may be a result itself.
inline Nest late_division_norm(TensorRole mean = TensorRole::temporary) {
  const ScalarExpr count = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  const ScalarExpr centred = read(0) - read(1);
  return NestBuilder("late", {{"R", 3}, {"C", 8}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("total", TensorRole::temporary, {"R"})
      .tensor("squares", TensorRole::temporary, {"R"})
      .tensor("y", TensorRole::output, {"R", "C"})
      .tensor("mean", mean, {"R"})
      .statement("total_init[i] : 0 <= i < R", "total[i]", {}, number(0))
      .statement("total_update[i, k] : 0 <= i < R and 0 <= k < C", "total[i]", {"x[i, k]"}, read(0), ReductionOp::add)
      .statement("mean[i] : 0 <= i < R", "mean[i]", {"total[i]"}, read(0) / count, std::nullopt, {"C"})
      .statement("squares_init[i] : 0 <= i < R", "squares[i]", {}, number(0))
      .statement("squares_update[i, k] : 0 <= i < R and 0 <= k < C", "squares[i]", {"x[i, k]", "mean[i]"}, centred * centred,
                 ReductionOp::add)
      .statement("y[i, k] : 0 <= i < R and 0 <= k < C", "y[i, k]", {"x[i, k]", "mean[i]", "squares[i]"},
                 centred * apply(ScalarOp::rsqrt, read(2) / count), std::nullopt, {"C"})
      .build();
}

/// Normalised channels, which lie last: statistics over images and places, divided by one size after the other.
inline Nest channel_norm(const std::string& places = "S") {
  const ScalarExpr images = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)),
                   each = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(1)), centred = read(0) - read(1);
  const std::string channel = "0 <= c < C", all = channel + " and 0 <= n < N and 0 <= s < " + places;
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"N", 3}, {"S", 5}, {"C", 4}};
  if (places != "S") sizes.erase(sizes.begin() + 1);
  return NestBuilder("channels", sizes)
      .tensor("x", TensorRole::input, {"N", places, "C"})
      .tensor("total", TensorRole::temporary, {"C"})
      .tensor("mean", TensorRole::temporary, {"C"})
      .tensor("squares", TensorRole::temporary, {"C"})
      .tensor("y", TensorRole::output, {"N", places, "C"})
      .statement("total_init[c] : " + channel, "total[c]", {}, number(0))
      .statement("total_update[c, n, s] : " + all, "total[c]", {"x[n, s, c]"}, read(0), ReductionOp::add)
      .statement("mean[c] : " + channel, "mean[c]", {"total[c]"}, read(0) / images / each, std::nullopt, {"N", places})
      .statement("squares_init[c] : " + channel, "squares[c]", {}, number(0))
      .statement("squares_update[c, n, s] : " + all, "squares[c]", {"x[n, s, c]", "mean[c]"}, centred * centred, ReductionOp::add)
      .statement("y[n, s, c] : " + all, "y[n, s, c]", {"x[n, s, c]", "mean[c]", "squares[c]"},
                 centred * apply(ScalarOp::rsqrt, read(2) / images / each), std::nullopt, {"N", places})
      .build();
}

/// Weights of a row are summed up twice, and a denominator made of the first sum stands before the second one. `shared`: both sums read
/// the weights; else the second one reads the input.
inline Nest early_denominator(bool shared = true) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  return NestBuilder("early", {{"R", 4}, {"C", 7}, {"D", 3}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("V", TensorRole::input, {"C", "D"})
      .tensor("W", TensorRole::temporary, {"R", "C"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("below", TensorRole::temporary, {"R"})
      .tensor("PV", TensorRole::temporary, {"R", "D"})
      .tensor("O", TensorRole::output, {"R", "D"})
      .statement("W[i, j] : " + pair, "W[i, j]", {"x[i, j]"}, apply(ScalarOp::tanh, read(0)))
      .statement("L_init[i] : " + row, "L[i]", {}, number(0))
      .statement("L_update[i, j] : " + pair, "L[i]", {"W[i, j]"}, read(0) * read(0), ReductionOp::add)
      .statement("below[i] : " + row, "below[i]", {"L[i]"}, read(0) + number(1))
      .statement("PV_init[i, d] : " + row + " and 0 <= d < D", "PV[i, d]", {}, number(0))
      .statement("PV_update[i, d, j] : " + pair + " and 0 <= d < D", "PV[i, d]", {shared ? "W[i, j]" : "x[i, j]", "V[j, d]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("O[i, d] : " + row + " and 0 <= d < D", "O[i, d]", {"PV[i, d]", "below[i]"}, read(0) / read(1))
      .build();
}

/// y[i, j] = b[j, i] + b[j, i], where b copies a, which copies x transposed.
inline Nest copied_twice() {
  const std::string pair = "0 <= i < R and 0 <= j < C";
  return NestBuilder("copied", {{"R", 4}, {"C", 7}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("a", TensorRole::temporary, {"C", "R"})
      .tensor("b", TensorRole::temporary, {"C", "R"})
      .tensor("y", TensorRole::output, {"R", "C"})
      .statement("A[i, j] : " + pair, "a[j, i]", {"x[i, j]"}, read(0))
      .statement("B[i, j] : " + pair, "b[j, i]", {"a[j, i]"}, read(0))
      .statement("Y[i, j] : " + pair, "y[i, j]", {"b[j, i]"}, read(0) + read(0))
      .build();
}

/// A loss of all pairs for each b of B: reduced over i, j of loss[b, i, j] = log(1 + exp(product)), product = sum over k of x[b, i, k] y[b, j, k].
struct SummedPairs {
  ElementType type = ElementType::f32;
  std::string mask{};  ///< further conditions of the pairs that are reduced
  ReductionOp reduction = ReductionOp::add;
  std::string element = "loss[b, i, j]";  ///< that is reduced
  ScalarExpr value{};                     ///< none: the element itself
  ElementType total = ElementType::f32;
  std::int64_t results = 2, rows = 40, columns = 36;
};

inline Nest summed_pairs(const SummedPairs& pairs = {}) {
  const std::string row = "0 <= b < B", pair = row + " and 0 <= i < M and 0 <= j < N";
  const auto factor = [&](int ordinal) {
    return pairs.type == ElementType::f32 ? read(ordinal) : ScalarExpr::cast(ElementType::f32, read(ordinal, pairs.type));
  };
  const ScalarExpr large = ScalarExpr::make(ScalarOp::max, {read(0), number(0)}),
                   small = apply(ScalarOp::log1p, apply(ScalarOp::exp, number(0) - apply(ScalarOp::abs, read(0))));
  const ScalarExpr value = pairs.value.defined() ? pairs.value : read(0);
  const bool wide = pairs.total == ElementType::f32;
  return NestBuilder("summed_pairs", {{"B", pairs.results}, {"M", pairs.rows}, {"N", pairs.columns}, {"K", 3}})
      .tensor("x", TensorRole::input, {"B", "M", "K"}, pairs.type)
      .tensor("y", TensorRole::input, {"B", "N", "K"}, pairs.type)
      .tensor("product", TensorRole::temporary, {"B", "M", "N"})
      .tensor("loss", TensorRole::temporary, {"B", "M", "N"})
      .tensor("out", TensorRole::output, {"B"}, pairs.total)
      .statement("product_init[b, i, j] : " + pair, "product[b, i, j]", {}, number(0))
      .statement("product[b, i, j, k] : " + pair + " and 0 <= k < K", "product[b, i, j]", {"x[b, i, k]", "y[b, j, k]"},
                 factor(0) * factor(1), ReductionOp::add)
      .statement("loss[b, i, j] : " + pair, "loss[b, i, j]", {"product[b, i, j]"}, large + small)
      .statement("init[b] : " + row, "out[b]", {},
                 ScalarExpr::constant(neutral_element(pairs.reduction, pairs.total), pairs.total))
      .statement("sum[b, i, j] : " + pair + pairs.mask, "out[b]", {pairs.element},
                 wide ? value : ScalarExpr::cast(pairs.total, value), pairs.reduction)
      .build();
}

/// y = x / sqrt(|z| + 1), element by element.
inline Nest quotients_by_roots() {
  const std::string pair = "0 <= i < R and 0 <= j < C";
  return NestBuilder("roots", {{"R", 4}, {"C", 7}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("z", TensorRole::input, {"R", "C"})
      .tensor("y", TensorRole::output, {"R", "C"})
      .statement("y[i, j] : " + pair, "y[i, j]", {"x[i, j]", "z[i, j]"},
                 read(0) / apply(ScalarOp::sqrt, apply(ScalarOp::abs, read(1)) + number(1)))
      .build();
}

/// The nest with scalars that are positive by their range.
inline Nest with_positive_scalars(Nest nest) {
  for (ScalarParam& scalar : nest.scalars) scalar.minimum = 1e-30;
  return nest;
}

/// Scores masked to a window by a select: some tiles of a row have no visible column.
inline Nest windowed_attention() {
  Nest nest = scores_softmax_values(Mask::select);
  Statement& scores = nest.statements[2];
  const auto index = [&](const std::string& text) {
    return parse_pw_aff("[R, C, D] -> { S[i, j] -> [(" + text + ")] }", "test");
  };
  scores.indices = {index("j"), index("i"), index("i - 1")};
  const ScalarExpr window = ScalarExpr::make(
      ScalarOp::logical_and,
      {ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(0), ScalarExpr::index(1)}),
       ScalarExpr::make(ScalarOp::logical_not, {ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(0), ScalarExpr::index(2)})})});
  scores.value = scores.value.with_args({window, scores.value.args()[1], scores.value.args()[2]});
  return nest;
}

/// Softmax sums over scores with a bias that grows along the row and one of its own for each, returned with the logarithm of each
/// row's sum. With `prefix`, row i sees columns j < P and columns j <= i: a domain of two parts.
inline Nest biased_scores(bool prefix = false) {
  const std::string row = "0 <= i < R";
  const std::string pair = row + " and 0 <= j < C" + (prefix ? " and (j < P or j <= i)" : "");
  const ScalarExpr distance = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  return NestBuilder("biased", {{"R", 4}, {"C", 7}, {"D", 3}, {"P", 2}})
      .scalar("scale", 0.5)
      .tensor("T", TensorRole::input, {"R", "C"})
      .tensor("slope", TensorRole::input, {"R"})
      .tensor("B", TensorRole::input, {"R", "C"})
      .tensor("V", TensorRole::input, {"C", "D"})
      .tensor("S", TensorRole::temporary, {"R", "C"})
      .tensor("Mx", TensorRole::temporary, {"R"})
      .tensor("E", TensorRole::temporary, {"R", "C"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("PV", TensorRole::temporary, {"R", "D"})
      .tensor("O", TensorRole::output, {"R", "D"})
      .tensor("lse", TensorRole::output, {"R"})
      .statement("S[i, j] : " + pair, "S[i, j]", {"T[i, j]", "slope[i]", "B[i, j]"},
                 read(0) * ScalarExpr::scalar("scale", ElementType::f32) + read(1) * distance + read(2), std::nullopt, {"j - i"})
      .statement("Mx_init[i] : " + row, "Mx[i]", {}, number(-infinity()))
      .statement("Mx_update[i, j] : " + pair, "Mx[i]", {"S[i, j]"}, read(0), ReductionOp::max)
      .statement("E[i, j] : " + pair, "E[i, j]", {"S[i, j]", "Mx[i]"}, apply(ScalarOp::exp, read(0) - read(1)))
      .statement("L_init[i] : " + row, "L[i]", {}, number(0))
      .statement("L_update[i, j] : " + pair, "L[i]", {"E[i, j]"}, read(0), ReductionOp::add)
      .statement("PV_init[i, d] : " + row + " and 0 <= d < D", "PV[i, d]", {}, number(0))
      .statement("PV_update[i, d, j] : " + pair + " and 0 <= d < D", "PV[i, d]", {"E[i, j]", "V[j, d]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("O[i, d] : " + row + " and 0 <= d < D", "O[i, d]", {"PV[i, d]", "L[i]"}, read(0) / read(1))
      .statement("lse[i] : " + row, "lse[i]", {"Mx[i]", "L[i]"}, read(0) + apply(ScalarOp::log, read(1)))
      .build();
}

/// The same with scores bounded by a hyperbolic tangent.
inline Nest capped_scores() {
  Nest nest = biased_scores();
  nest.op = "capped";
  const ScalarExpr scale = ScalarExpr::scalar("scale", ElementType::f32);
  nest.statements[0].value = scale * apply(ScalarOp::tanh, read(0) / scale);
  nest.statements[0].reads.resize(1);
  nest.statements[0].indices.clear();
  return nest;
}

/// The same with a limit of the bound, and so of the scores.
inline Nest limited_scores(double most = 20) {
  Nest nest = with_positive_scalars(capped_scores());
  nest.scalars[0].maximum = most;
  return nest;
}

/// Where `nest` has a statement of that name, its value; for tests that change one.
inline ScalarExpr& value_of(Nest& nest, const std::string& statement) {
  for (Statement& s : nest.statements) {
    if (s.name == statement) return s.value;
  }
  throw InternalError("no statement " + statement);
}

}  // namespace nestor::samples
