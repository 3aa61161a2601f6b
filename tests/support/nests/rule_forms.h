// Random forms of nests that single algebra rules look for, where a sample nest has too few of them.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "support/nests/masked_scores.h"
#include "support/nests/prefix_nests.h"
#include "support/nests/special_nests.h"
#include "support/nests/unrolled_sums.h"

namespace nestor::samples {

/// Some of the taps of a box, or all.
inline std::vector<std::pair<int, int>> some_taps(Dice& dice) {
  auto taps = taps_of_box(1 + dice.below(2), 2 + dice.below(2));
  if (dice.chance(0.2)) taps.erase(taps.begin() + dice.below(static_cast<int>(taps.size())));
  if (dice.chance(0.2)) std::reverse(taps.begin(), taps.end());
  if (dice.chance(0.1)) taps.push_back(taps.front());
  return taps;
}

/// Recurrences that add up, or nearly.
inline Nest some_running_values(Dice& dice) {
  if (dice.chance(0.2)) return running_in_place(dice.chance(0.5) ? TensorRole::output : TensorRole::temporary);
  if (dice.chance(0.2)) return running_from_zero();
  const ScalarOp op = dice.of<ScalarOp>({ScalarOp::add, ScalarOp::add, ScalarOp::mul, ScalarOp::max, ScalarOp::min});
  const std::vector<ScalarExpr> values{ScalarExpr::make(op, {read(0), read(1)}),
                                       ScalarExpr::make(op, {read(1), read(0)}),
                                       ScalarExpr::make(op, {read(0), read(1) * read(2)}),
                                       ScalarExpr::make(op, {read(0), read(1) * number(2)}),
                                       read(0) - read(1),
                                       read(1) - read(0),
                                       ScalarExpr::make(op, {ScalarExpr::make(op, {read(0), read(1)}), read(2)}),
                                       ScalarExpr::make(op, {read(0) * number(0.5), read(1)})};
  const std::vector<ScalarExpr> firsts{
      read(0), read(0), number(0), number(1), read(0) * number(2), apply(ScalarOp::exp, read(0))};
  return running_values({.first_value = dice.of<std::string>({"x[r, c]", "x[r, c]", "g[r]", "x[r, 0]"}),
                         .first = dice.of(firsts),
                         .value = dice.of(values),
                         .backward = dice.chance(0.4),
                         .role = dice.chance(0.6) ? TensorRole::output : TensorRole::temporary});
}

/// Reductions of all places but some.
inline Nest some_others(Dice& dice) {
  LeftOutForm form;
  form.seen = dice.of<std::string>({"(k < c or k > c)", "(k < c or k > c)", "(k < c - 1 or k > c + 1)", "(k < c or k > c + 2)",
                                    "(k < c or k >= c)", "(k <= c or k > c + 1)", "(k < c - 2 or k > c)", "k > c",
                                    "(k < 2 or k > c)", "(k < c or k > c) and k != 1", "(k < c or k > c) and r <= k"});
  form.op = dice.of<ReductionOp>({ReductionOp::add, ReductionOp::mul, ReductionOp::max, ReductionOp::min});
  form.start = dice.chance(0.9) ? neutral_element(form.op, ElementType::f32) : 2;
  if (dice.chance(0.3)) form.reads.emplace_back(dice.of<std::string>({"x[r, c]", "x[0, k]", "x[r, 0]"}));
  form.value = form.reads.size() > 1 ? dice.of<ScalarExpr>({read(0) * read(1), read(0) - read(1)})
                                     : dice.of<ScalarExpr>({read(0), read(0) * number(2), apply(ScalarOp::exp, read(0))});
  return largest_others(form);
}

/// Scores relative to a maximum, the logarithm of their sum, and weights made with it.
inline Nest some_weights_by_logarithm(Dice& dice) {
  const std::string pair = " : 0 <= i < N and 0 <= j < M",
                    mask = dice.of<std::string>({"", "", "", " and j <= i", " and j != i"}), part = dice.chance(0.8) ? mask : "";
  const double start = dice.chance(0.8) ? -infinity() : dice.of<double>({0, -1e30});
  const ElementType value = some_float(dice);
  const ScalarExpr rate = number(dice.of<double>({1, 1, 1, 0.5, 2}));
  const auto scaled = [&](const ScalarExpr& value) { return rate.is_constant(1) ? value : value * rate; };
  const std::vector<ScalarExpr> scores{read(0), read(0) + read(1), read(0) * number(2)};
  const std::vector<ScalarExpr> exponents{scaled(read(0)) - read(1), scaled(read(0)) - read(1), read(0) - read(1),
                                          read(0) * number(2) - read(1)};
  return NestBuilder("logarithm", {{"N", 5}, {"M", 4}, {"D", 3}})
      .tensor("T", TensorRole::input, {"N", "M"})
      .tensor("B", TensorRole::input, {"M"})
      .tensor("b", TensorRole::input, {"M", "D"}, value)
      .tensor("a", TensorRole::temporary, {"N", "M"})
      .tensor("top", TensorRole::temporary, {"N"})
      .tensor("total", TensorRole::temporary, {"N"})
      .tensor("logarithm", TensorRole::temporary, {"N"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("a[i, j]" + pair, "a[i, j]", {"T[i, j]", "B[j]"}, dice.of(scores))
      .statement("top_init[i] : 0 <= i < N", "top[i]", {}, number(start))
      .statement("top[i, j]" + pair + mask, "top[i]", {"a[i, j]"}, read(0), ReductionOp::max)
      .statement("total_init[i] : 0 <= i < N", "total[i]", {}, number(0))
      .statement("total[i, j]" + pair + mask, "total[i]", {"a[i, j]", "top[i]"}, apply(ScalarOp::exp, scaled(read(0) - read(1))),
                 ReductionOp::add)
      .statement("logarithm[i] : 0 <= i < N", "logarithm[i]", {"total[i]", "top[i]"},
                 scaled(read(1)) + apply(ScalarOp::log, read(0)))
      .statement("init[i, d] : 0 <= i < N and 0 <= d < D", "out[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + pair + " and 0 <= d < D" + part, "out[i, d]", {"a[i, j]", "logarithm[i]", "b[j, d]"},
                 apply(ScalarOp::exp, dice.of(exponents)) * wide(2, value), ReductionOp::add)
      .build();
}

/// One softmax over two or three sources of scores, some of them masked or scaled, with values or without.
inline Nest some_sources(Dice& dice) {
  const bool minimum = dice.chance(0.15), masked = dice.chance(0.4), values = dice.chance(0.7), sink = dice.chance(0.3);
  const double sign = minimum ? -1 : 1;
  const ScalarOp meet = minimum ? ScalarOp::min : ScalarOp::max;
  const ScalarExpr rate = number(sign * dice.of<double>({1, 1, 0.5, 2}));
  const int count = 1 + dice.below(3);
  NestBuilder nest("sources", {{"R", 4}, {"C", 5}, {"D", 3}});
  nest.tensor("out", TensorRole::output, {"R", "D"}).tensor("t", TensorRole::temporary, {"R"});
  const std::string row = " : 0 <= i < R", element = row + " and 0 <= d < D";
  std::vector<std::string> tops, sums, mixed;
  for (int k = 0; k < count; ++k) {
    const std::string n = std::to_string(k),
                      pair = row + " and 0 <= j < C" + dice.of<std::string>({"", "", " and j <= i", " and j < i"});
    const bool bounded = dice.chance(0.15);
    nest.tensor("T" + n, TensorRole::input, {"R", "C"}).tensor("s" + n, TensorRole::temporary, {"R", "C"});
    nest.tensor("m" + n, TensorRole::temporary, {"R"});
    ScalarExpr score = bounded ? apply(ScalarOp::sin, read(0)) : read(0);
    if (masked) score = ScalarExpr::make(ScalarOp::select, {some_mask(dice), score, number(-sign * infinity())});
    nest.statement("s" + n + "[i, j]" + pair, "s" + n + "[i, j]", {"T" + n + "[i, j]"}, score, std::nullopt, {"j", "i"});
    nest.statement("m" + n + "_init[i]" + row, "m" + n + "[i]", {},
                   number(dice.chance(0.9) ? -sign * infinity() : -sign * dice.of<double>({3, 1e30})));
    nest.statement("m" + n + "[i, j]" + pair, "m" + n + "[i]", {"s" + n + "[i, j]"}, read(0),
                   minimum ? ReductionOp::min : ReductionOp::max);
    tops.push_back("m" + n + "[i]");
    sums.push_back(pair);
  }
  ScalarExpr top = read(0);
  if (sink) {
    nest.tensor("z", TensorRole::input, {"R"});
    tops.insert(tops.begin() + dice.below(count + 1), "z[i]");
  }
  for (int k = 1; k < static_cast<int>(tops.size()); ++k) top = ScalarExpr::make(meet, {top, read(k)});
  nest.statement("t[i]" + row, "t[i]", tops, top);
  const ScalarExpr power = apply(ScalarOp::exp, (read(0) - read(1)) * rate);
  const bool inlined = dice.chance(0.3);
  std::vector<std::string> totals;
  for (int k = 0; k < count; ++k) {
    const std::string n = std::to_string(k), &pair = sums[static_cast<std::size_t>(k)];
    nest.tensor("l" + n, TensorRole::temporary, {"R"});
    std::vector<std::string> term{"s" + n + "[i, j]", "t[i]"};
    ScalarExpr weight = power;
    if (!inlined) {
      nest.tensor("p" + n, TensorRole::temporary, {"R", "C"})
          .statement("p" + n + "[i, j]" + pair, "p" + n + "[i, j]", term, power);
      term = {"p" + n + "[i, j]"};
      weight = read(0);
    }
    nest.statement("l" + n + "_init[i]" + row, "l" + n + "[i]", {}, number(0));
    nest.statement("l" + n + "[i, j]" + pair, "l" + n + "[i]", term, weight, ReductionOp::add);
    totals.push_back("l" + n + "[i]");
    if (!values) continue;
    nest.tensor("v" + n, TensorRole::input, {"C", "D"}).tensor("w" + n, TensorRole::temporary, {"R", "D"});
    term.push_back("v" + n + "[j, d]");
    nest.statement("w" + n + "_init[i, d]" + element, "w" + n + "[i, d]", {}, number(0));
    nest.statement("w" + n + "[i, d, j]" + pair + " and 0 <= d < D", "w" + n + "[i, d]", term,
                   weight * read(static_cast<int>(term.size()) - 1), ReductionOp::add);
    mixed.push_back("w" + n + "[i, d]");
  }
  ScalarExpr total = read(0);
  for (int k = 1; k < count; ++k) total = total + read(k);
  if (sink) {
    totals.insert(totals.end(), {"z[i]", "t[i]"});
    total = total + apply(ScalarOp::exp, (read(count) - read(count + 1)) * rate);
  }
  std::vector<std::string> reads = totals;
  if (!values) return nest.statement("out[i, d]" + element, "out[i, d]", reads, total).build();
  const int first = static_cast<int>(reads.size());
  reads.insert(reads.end(), mixed.begin(), mixed.end());
  ScalarExpr above = read(first);
  for (int k = 1; k < count; ++k) above = above + read(first + k);
  return nest.statement("out[i, d]" + element, "out[i, d]", reads, above / total).build();
}

/// Softmax sums under a mask of a large negative number, or of less large ones.
inline Nest some_finite_masks(Dice& dice) {
  MaskedScores how;
  if (dice.chance(0.5)) how.seen = sees_near();
  if (dice.chance(0.2)) how.seen = ScalarExpr::make(ScalarOp::logical_not, {how.seen});
  how.hidden = dice.of<double>({-1e9, -10000, -1000, -kFarthest, -infinity(), -999, 0});
  // Added to scores, larger ones make no numbers of f32.
  how.added = (how.hidden > -20000 || how.hidden == -infinity()) && dice.chance(0.4);
  how.quotients = dice.chance(0.3);
  how.window = dice.of<std::string>({"i - 2", "i - 1", "i - 3"});
  if (dice.chance(0.3)) how.weight = apply(dice.of<ScalarOp>({ScalarOp::exp, ScalarOp::exp2}), (read(0) - read(1)) * number(0.5));
  return masked_scores(how);
}

/// Sums of several products of halves a term: complex numbers.
inline Nest some_complex_product(Dice& dice) {
  const ElementType type = dice.of<ElementType>({ElementType::f16, ElementType::bf16});
  const std::string pair = " : 0 <= i < M and 0 <= j < N" + dice.of<std::string>({"", "", " and j <= i"});
  const ScalarExpr first = wide(0, type) * wide(1, type), second = wide(2, type) * wide(3, type);
  const std::vector<ScalarExpr> values{first + second, first - second, first - second, second - first,
                                       first + second * number(2)};
  NestBuilder nest("complex", {{"M", 4}, {"N", 3}, {"K", 5}});
  for (const char* left : {"a", "b"}) nest.tensor(left, TensorRole::input, {"M", "K"}, type);
  for (const char* right : {"c", "e"}) nest.tensor(right, TensorRole::input, {"N", "K"}, type);
  return nest.tensor("sums", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("init[i, j]" + pair, "sums[i, j]", {}, number(dice.chance(0.9) ? 0 : 1))
      .statement("sum[i, j, k]" + pair + " and 0 <= k < K", "sums[i, j]",
                 {"a[i, k]", "c[j, k]", "b[i, k]", dice.chance(0.8) ? "e[j, k]" : "c[j, k]"}, dice.of(values), ReductionOp::add)
      .statement("out[i, j]" + pair, "out[i, j]", {"sums[i, j]"},
                 dice.of<ScalarExpr>({read(0), read(0) * read(0), apply(ScalarOp::exp, read(0)), apply(ScalarOp::abs, read(0))}))
      .build();
}

/// An extremum behind extrema of the same terms, or nearly.
inline Nest some_scales(Dice& dice) {
  const std::vector<std::string> masks{"", "", "", " and t < 3", " and t <= i", " and k <= i"};
  const std::string inner = " : 0 <= i < R and 0 <= k < B and 0 <= t < 4" + dice.of(masks),
                    outer = dice.chance(0.5) ? inner : " : 0 <= i < R and 0 <= k < B and 0 <= t < 4" + dice.of(masks),
                    cell = " : 0 <= i < R and 0 <= k < B", result = dice.of<std::string>({"[0]", "[i]", "[k]"});
  const ReductionOp op = dice.of<ReductionOp>({ReductionOp::max, ReductionOp::max, ReductionOp::min}),
                    other = dice.chance(0.8) ? op : ReductionOp::add;
  const auto start = [&](ReductionOp reduction) {
    return number(dice.chance(0.9) ? neutral_element(reduction, ElementType::f32) : 1);
  };
  const std::vector<ScalarExpr> terms{apply(ScalarOp::abs, read(0)), read(0), read(0) * read(1)};
  const ScalarExpr term = dice.of(terms), again = dice.chance(0.8) ? term : dice.of(terms);
  const std::string extent = result == "[i]" ? "R" : result == "[k]" ? "B" : "1";
  return NestBuilder("scales", {{"R", 5}, {"B", 3}})
      .tensor("x", TensorRole::input, {"R", "B", "4"})
      .tensor("y", TensorRole::input, {"B"})
      .tensor("most", TensorRole::temporary, {"R", "B"})
      .tensor("whole", TensorRole::temporary, {extent})
      .tensor("out", TensorRole::output, {"R", "B"})
      .statement("most_init[i, k]" + cell, "most[i, k]", {}, start(op))
      .statement("most[i, k, t]" + inner, "most[i, k]", {"x[i, k, t]", "y[k]"}, term, op)
      .statement("whole_init[e] : 0 <= e < " + extent, "whole[e]", {}, start(other))
      .statement("whole[i, k, t]" + outer, "whole" + result, {"x[i, k, t]", dice.chance(0.9) ? "y[k]" : "y[0]"}, again, other)
      .statement("out[i, k]" + cell, "out[i, k]", {"most[i, k]", "whole" + result}, read(0) + read(1))
      .build();
}

/// r[t] = reduction over k < K of x[s] w[k] where t + a - k = P s and 0 <= s < N, and of the last k beside it: a transposed convolution.
inline Nest spread_filter(int stride, int offset, ReductionOp reduction = ReductionOp::add) {
  const std::string p = std::to_string(stride), came = "t + " + std::to_string(offset) + " - k",
                    place = "floor((" + came + ")/" + p + ")";
  const std::string terms =
      "0 <= t < " + p + "*N and 0 <= k < K and " + p + "*" + place + " = " + came + " and 0 <= " + place + " < N";
  return NestBuilder("spread_filter", {{"N", 5}, {"K", 7}})
      .tensor("x", TensorRole::input, {"N"})
      .tensor("w", TensorRole::input, {"K"})
      .tensor("r", TensorRole::temporary, {p + "*N"})
      .tensor("out", TensorRole::output, {p + "*N"})
      .statement("r_init[t] : 0 <= t < " + p + "*N", "r[t]", {}, number(neutral_element(reduction, ElementType::f32)))
      .statement("r[t, k] : " + terms, "r[t]", {"x[" + place + "]", "w[k]"},
                 read(0) * read(1) + ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)), reduction, {"k"})
      .statement("out[t] : 0 <= t < " + p + "*N", "out[t]", {"r[t]"}, read(0))
      .build();
}

/// out[i] = x[i] - min(g[i] / 2, b), where b = sqrt(|t|), or what comes of it, stands between the definitions. `later`: t is a sum then.
inline Nest bounded_step(ElementType type, bool twice, bool later = false) {
  const std::string row = "0 <= i < N";
  const ScalarExpr g = type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, type));
  NestBuilder nest("bounded_step", {{"N", 9}});
  nest.tensor("g", TensorRole::input, {"N"}, type)
      .tensor("x", TensorRole::input, {"N"})
      .tensor("t", later ? TensorRole::temporary : TensorRole::input, {})
      .tensor("slope", TensorRole::temporary, {"N"})
      .tensor("root", TensorRole::temporary, {})
      .tensor("bound", TensorRole::temporary, {})
      .tensor("out", TensorRole::output, {"N"})
      .statement("slope[i] : " + row, "slope[i]", {"g[i]"}, g * number(0.5));
  if (later) {
    nest.statement("t_init[]", "t[]", {}, number(0)).statement("t_sum[i] : " + row, "t[]", {"x[i]"}, read(0), ReductionOp::add);
  }
  return nest.statement("root[]", "root[]", {"t[]"}, apply(ScalarOp::sqrt, apply(ScalarOp::abs, read(0))))
      .statement("bound[]", "bound[]", {"root[]"}, twice ? read(0) + read(0) : read(0))
      .statement("out[i] : " + row, "out[i]", {"x[i]", "slope[i]", "bound[]"},
                 read(0) - ScalarExpr::make(ScalarOp::min, {read(1), read(2)}))
      .build();
}

/// Steps over a row whose ends get values of their own in each step.
inline Nest some_stepped_row(Dice& dice) {
  const std::string step = "0 <= t < T and ", row = "0 <= x < W";
  const std::vector<std::string> ends{"p[x]", "p[x]", "p[0]", "g[t, x]", "p[W - 1 - x]"};
  return NestBuilder("stepped_row", {{"T", 3}, {"W", 6}})
      .tensor("p", TensorRole::input, {"W"})
      .tensor("g", TensorRole::temporary, {"T + 1", "W"})
      .tensor("out", TensorRole::output, {"W"})
      .statement("first[t, x] : 0 <= t <= T and " + row, "g[t, x]", {"p[x]"}, read(0) * number(3))
      .statement("left[t, s, x] : s = 0 and " + step + row + " and x = 0", dice.chance(0.8) ? "g[t + 1, x]" : "g[t, x]",
                 {dice.of(ends)}, read(0))
      .statement("inner[t, s, x] : s = 1 and " + step + "0 <= x < W - 2", "g[t + 1, x + 1]",
                 {dice.chance(0.8) ? "g[t, x]" : "g[t + 1, x]", "g[t, x + 2]"}, (read(0) + read(1)) * number(0.5))
      .join_last()
      .statement("right[t, s, x] : s = 2 and " + step + row + " and x = W - 1" + (dice.chance(0.7) ? " and x > 0" : ""),
                 dice.chance(0.8) ? "g[t + 1, x]" : "g[t + 1, 0]", {dice.of(ends)}, read(0) * number(2))
      .join_last()
      .statement("out[x] : " + row, "out[x]", {"g[T, x]"}, read(0))
      .build();
}

/// A convolution of a row that is made larger.
inline Nest some_enlarged_row(Dice& dice) {
  const ElementType type = dice.of<ElementType>({ElementType::f16, ElementType::bf16});
  const std::string factor = dice.of<std::string>({"2", "2", "3"}), shift = dice.of<std::string>({"", "", " - 1", " + 1"});
  const std::string at = "floor((y + s" + shift + ") / " + factor + ")",
                    place = " : 0 <= n < N and 0 <= y < " + factor + " S - 2 and 0 <= f < F",
                    inside = " and 0 <= y + s" + shift + " < " + factor + " S";
  return NestBuilder("enlarged_row", {{"N", 2}, {"S", 3}, {"F", 4}})
      .tensor("a", TensorRole::input, {"N", "S", "3"}, type)
      .tensor("w", TensorRole::input, {"F", "3", "3"}, type)
      .tensor("sums", TensorRole::temporary, {"N", factor + " S", "F"})
      .tensor("out", TensorRole::output, {"N", factor + " S", "F"})
      .statement("init[n, y, f]" + place, "sums[n, y, f]", {}, number(0))
      .statement("sum[n, y, f, s, c]" + place + " and 0 <= s < 3 and 0 <= c < 3" + inside, "sums[n, y, f]",
                 {"a[n, " + at + ", c]", "w[f, s, c]"}, wide(0, type) * wide(1, type), ReductionOp::add)
      .statement("out[n, y, f]" + place, "out[n, y, f]", {"sums[n, y, f]"}, read(0))
      .build();
}

/// The gradient of a convolution's filters, channels first.
inline Nest some_filter_gradient(Dice& dice) {
  const ElementType type = dice.of<ElementType>({ElementType::f16, ElementType::bf16});
  const std::string cell = " : 0 <= f < F and 0 <= k < K and 0 <= s < 3", cut = dice.of<std::string>({"", "", " and y + s >= 1"});
  return NestBuilder("filter_gradient", {{"N", 2}, {"F", 32}, {"K", 32}, {"Y", 9}})
      .tensor("g", TensorRole::input, {"N", "F", "Y"}, type)
      .tensor("x", TensorRole::input, {"N", "K", "Y + 2"}, type)
      .tensor("sums", TensorRole::temporary, {"F", "K", "3"})
      .tensor("out", TensorRole::output, {"F", "K", "3"})
      .statement("init[f, k, s]" + cell, "sums[f, k, s]", {}, number(0))
      .statement("sum[f, k, s, n, y]" + cell + " and 0 <= n < N and 0 <= y < Y" + cut, "sums[f, k, s]",
                 {"g[n, f, y]", "x[n, k, y + s]"}, wide(0, type) * wide(1, type), ReductionOp::add)
      .statement("out[f, k, s]" + cell, "out[f, k, s]", {"sums[f, k, s]"}, read(0))
      .build();
}

/// A product of an f32 tensor, computed or not, and one of f16.
inline Nest some_mixed_product(Dice& dice) {
  const std::string pair = " : 0 <= i < M and 0 <= j < N", inner = " : 0 <= i < M and 0 <= k < K";
  const bool product = dice.chance(0.5);
  NestBuilder nest("mixed", {{"M", 256}, {"N", 256}, {"K", 256}, {"L", 64}});
  nest.tensor("x", TensorRole::input, {"M", "L"}, ElementType::f16).tensor("z", TensorRole::input, {"K", "L"}, ElementType::f16);
  nest.tensor("y", TensorRole::input, {"N", "K"}, ElementType::f16).tensor("w", TensorRole::temporary, {"M", "K"});
  nest.tensor("sums", TensorRole::temporary, {"M", "N"}).tensor("out", TensorRole::output, {"M", "N"});
  if (product) {
    nest.statement("w_init[i, k]" + inner, "w[i, k]", {}, number(0))
        .statement("w[i, k, l]" + inner + " and 0 <= l < L", "w[i, k]", {"x[i, l]", "z[k, l]"},
                   wide(0, ElementType::f16) * wide(1, ElementType::f16), ReductionOp::add);
  } else {
    nest.tensor("a", TensorRole::input, {"M", "K"})
        .statement("w[i, k]" + inner, "w[i, k]", {"a[i, k]"},
                   dice.of<ScalarExpr>({read(0) * number(3), apply(ScalarOp::exp, read(0)), apply(ScalarOp::tanh, read(0))}));
  }
  return nest.statement("init[i, j]" + pair, "sums[i, j]", {}, number(0))
      .statement("sum[i, j, k]" + pair + " and 0 <= k < K" + dice.of<std::string>({"", "", " and k <= i"}), "sums[i, j]",
                 {"w[i, k]", "y[j, k]"}, read(0) * wide(1, ElementType::f16), ReductionOp::add)
      .statement("out[i, j]" + pair, "out[i, j]", {"sums[i, j]"}, read(0))
      .build();
}

/// Weights that a sum of products computes for each column.
inline Nest some_computed_factor(Dice& dice) {
  const ElementType type = dice.of<ElementType>({ElementType::f16, ElementType::bf16, ElementType::f32}),
                    left = dice.chance(0.5) ? ElementType::f32 : type;
  const ScalarExpr score = wide(0, left), value = wide(1, type);
  const auto seen = ScalarExpr::make(ScalarOp::lt, {number(0), read(4)});
  const std::vector<ScalarExpr> terms{score * score * value,
                                      apply(ScalarOp::exp, score) * value,
                                      (score * read(2)) * (value * read(3)),
                                      apply(ScalarOp::tanh, score * read(2)) * value,
                                      ScalarExpr::make(ScalarOp::select, {seen, apply(ScalarOp::exp, score), number(0)}) * value,
                                      ScalarExpr::make(ScalarOp::select, {seen, apply(ScalarOp::exp, score), number(0)}),
                                      ScalarExpr::make(ScalarOp::max, {score, number(0)}) * value,
                                      (score / read(2)) * value};
  const std::string element = " : 0 <= i < Q and 0 <= d < D";
  return NestBuilder("weighted", {{"Q", 5}, {"K", 7}, {"D", 4}})
      .tensor("s", TensorRole::input, {"Q", "K"}, left)
      .tensor("v", TensorRole::input, {"K", "D"}, type)
      .tensor("a", TensorRole::input, {"Q"})
      .tensor("b", TensorRole::input, {"D"})
      .tensor("c", TensorRole::input, {"K", "D"})
      .tensor("out", TensorRole::output, {"Q", "D"})
      .statement("init[i, d]" + element, "out[i, d]", {}, number(0))
      .statement("sum[i, d, j]" + element + " and 0 <= j < K" + dice.of<std::string>({"", "", " and j <= i"}), "out[i, d]",
                 {"s[i, j]", "v[j, d]", "a[i]", "b[d]", "c[j, d]"}, dice.of(terms), ReductionOp::add)
      .build();
}

}  // namespace nestor::samples
