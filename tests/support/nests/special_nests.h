// Random nests that algebra rules match, and inputs with special values: softmax and its relatives, norms, masked and weighted sums,
// quotients by rows, chains of constants.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "poly/algebra/values/nest_edit.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/chained_products.h"
#include "support/nests/dice.h"
#include "support/nests/exponential_nests.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/sample_nests.h"

namespace nestor::samples {

inline constexpr double kFarthest = std::numeric_limits<float>::max();

inline ScalarExpr narrowed(ElementType type, const ScalarExpr& value) {
  return type == ElementType::f32 ? value : ScalarExpr::cast(type, value);
}
inline ScalarExpr integer(double value) { return ScalarExpr::constant(value, ElementType::i32); }
inline ElementType some_float(Dice& dice, double wide_ones = 0.7) {
  return dice.chance(wide_ones) ? ElementType::f32 : dice.of<ElementType>({ElementType::f16, ElementType::bf16});
}

/// A condition on index 0 = j and index 1 = i; some leave rows without points, some wrap around.
inline ScalarExpr some_mask(Dice& dice) {
  const ScalarExpr j = ScalarExpr::index(0), i = ScalarExpr::index(1);
  const auto make = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  const ScalarExpr causal = make(ScalarOp::le, j, i);
  switch (dice.below(6)) {
    case 0:
      return make(ScalarOp::lt, j, make(ScalarOp::sub, i, integer(2)));
    case 1:
      return make(ScalarOp::logical_and, causal,
                  ScalarExpr::make(ScalarOp::logical_not, {make(ScalarOp::lt, j, make(ScalarOp::sub, i, integer(1)))}));
    case 2:
      return make(ScalarOp::lt, make(ScalarOp::mul, j, integer(1073741824)), make(ScalarOp::add, i, integer(1)));
    case 3:
      return make(ScalarOp::le, ScalarExpr::cast(ElementType::f32, j), ScalarExpr::cast(ElementType::f32, i));
    default:
      return causal;
  }
}

/// Scores S[i, j] of many kinds, their extremum, exponentials, sums, and results that see the sums in different ways.
inline Nest some_softmax(Dice& dice) {
  const ElementType type = some_float(dice), value_type = some_float(dice), stored = some_float(dice);
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C" + (dice.chance(0.2) ? " and j <= i" : "");
  NestBuilder nest("softmax", {{"R", 3}, {"C", 5}, {"D", 2}});
  nest.scalar("scale", dice.of<double>({0.5, 1, 2}));
  nest.tensor("T", TensorRole::input, {"R", "C"}, type).tensor("B", TensorRole::input, {"R", "C"});
  nest.tensor("slope", TensorRole::input, {"R"}).tensor("V", TensorRole::input, {"C", "D"}, value_type);
  nest.tensor("Q", TensorRole::input, {"R", "D"}).tensor("K", TensorRole::input, {"C", "D"});
  nest.tensor("QK", TensorRole::temporary, {"R", "C"}).tensor("S", TensorRole::temporary, {"R", "C"});
  nest.tensor("Mx", TensorRole::temporary, {"R"}).tensor("E", TensorRole::temporary, {"R", "C"}, stored);
  const bool sum_is_result = dice.chance(0.1);
  nest.tensor("L", sum_is_result ? TensorRole::output : TensorRole::temporary, {"R"});
  nest.tensor("PV", TensorRole::temporary, {"R", "D"}).tensor("O", TensorRole::output, {"R", "D"});

  const ScalarExpr scale = ScalarExpr::scalar("scale", ElementType::f32), t = wide(0, type);
  const ScalarExpr distance = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(2));
  ScalarExpr score = t;
  switch (dice.below(9)) {
    case 0:
      score = t * scale;
      break;
    case 1:
      score = read(2) * scale;
      break;
    case 2:
      score = read(2) * scale + read(1);
      break;
    case 3:
      score = t * number(dice.of<double>({0.125, 0.5, 2}));
      break;
    case 4:
      score = apply(ScalarOp::log, ScalarExpr::make(ScalarOp::max, {t, number(0)}));
      break;
    case 5:
      score = scale * apply(ScalarOp::tanh, t);
      break;
    case 6:
      score = read(2) * scale + read(3) * distance;
      break;
    default:
      break;
  }
  if (dice.chance(0.3))
    score = ScalarExpr::make(ScalarOp::select, {some_mask(dice), score, number(dice.chance(0.6) ? -infinity() : -kFarthest)});
  const bool minimum = dice.chance(0.15);
  const double sign = minimum ? -1 : 1;
  const double start = dice.chance(0.85) ? -sign * infinity() : -sign * dice.of<double>({1e30, 3, kFarthest});
  const ScalarExpr rate = dice.chance(0.3) ? scale * number(sign) : number(sign * dice.of<double>({1, 1, 0.5, 2}));
  const ScalarOp exponential = dice.chance(0.8) ? ScalarOp::exp : ScalarOp::exp2;
  const auto phi = [&](int s, int m) {
    const ScalarExpr difference = dice.chance(0.7) ? (read(s) - read(m)) * rate : read(s) * rate - read(m) * rate;
    ScalarExpr value = apply(exponential, difference);
    if (dice.chance(0.05)) value = ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::i32, value * number(7)));
    if (dice.chance(0.05)) value = value * number(100000);
    return value;
  };
  nest.statement("QK_init[i, j] : " + pair, "QK[i, j]", {}, number(0));
  nest.statement("QK_update[i, j, d] : " + pair + " and 0 <= d < D", "QK[i, j]", {"Q[i, d]", "K[j, d]"}, read(0) * read(1),
                 ReductionOp::add);
  nest.statement("S[i, j] : " + pair, "S[i, j]", {"T[i, j]", "B[i, j]", "QK[i, j]", "slope[i]"}, score, std::nullopt,
                 {"j", "i", "j - i"});
  nest.statement("Mx_init[i] : " + row, "Mx[i]", {}, number(start));
  nest.statement("Mx_update[i, j] : " + pair, "Mx[i]", {"S[i, j]"}, read(0), minimum ? ReductionOp::min : ReductionOp::max);
  // A term of its own in each row's extremum and sum: attention with a sink.
  const bool sink = dice.chance(0.25);
  const std::string largest = sink ? "Mt[i]" : "Mx[i]", total = sink ? "Lt[i]" : "L[i]";
  if (sink) {
    nest.tensor("Mt", TensorRole::temporary, {"R"}).tensor("Lt", TensorRole::temporary, {"R"});
    nest.statement("Mt[i] : " + row, "Mt[i]", {"Mx[i]", "slope[i]"},
                   ScalarExpr::make(minimum ? ScalarOp::min : ScalarOp::max, {read(0), read(1)}));
  }
  const bool inlined = dice.chance(0.25);
  if (!inlined) nest.statement("E[i, j] : " + pair, "E[i, j]", {"S[i, j]", largest}, narrowed(stored, phi(0, 1)));
  const ScalarExpr term = inlined ? phi(0, 1) : wide(0, stored);
  const std::vector<std::string> sources =
      inlined ? std::vector<std::string>{"S[i, j]", largest} : std::vector<std::string>{"E[i, j]"};
  nest.statement("L_init[i] : " + row, "L[i]", {}, number(0));
  nest.statement("L_update[i, j] : " + pair, "L[i]", sources, term, ReductionOp::add);
  if (sink) nest.statement("Lt[i] : " + row, "Lt[i]", {"slope[i]", largest, "L[i]"}, read(2) + phi(0, 1));
  std::vector<std::string> weighted = sources;
  weighted.emplace_back("V[j, d]");
  const ScalarExpr v = wide(static_cast<int>(sources.size()), value_type);
  const bool normalised = !inlined && dice.chance(0.2);
  if (normalised) {
    nest.tensor("N", TensorRole::temporary, {"R", "C"}, stored);
    nest.statement("N[i, j] : " + pair, "N[i, j]", {"E[i, j]", total}, narrowed(stored, wide(0, stored) / read(1)));
    weighted[0] = "N[i, j]";
  }
  nest.statement("PV_init[i, d] : " + row + " and 0 <= d < D", "PV[i, d]", {}, number(0));
  nest.statement("PV_update[i, d, j] : " + pair + " and 0 <= d < D", "PV[i, d]", weighted, term * v, ReductionOp::add);
  nest.statement("O[i, d] : " + row + " and 0 <= d < D", "O[i, d]", {"PV[i, d]", total},
                 normalised         ? read(0)
                 : dice.chance(0.2) ? read(0) / ScalarExpr::make(ScalarOp::max, {read(1), number(1)})
                                    : read(0) / read(1));
  if (dice.chance(0.3)) {
    nest.tensor("lse", TensorRole::output, {"R"});
    nest.statement("lse[i] : " + row, "lse[i]", {largest, total}, read(0) * rate + apply(ScalarOp::log, read(1)));
  }
  if (!inlined && dice.chance(0.3)) {
    nest.tensor("y", TensorRole::output, {"R", "C"});
    nest.statement("y[i, j] : " + pair, "y[i, j]", {"E[i, j]", total}, wide(0, stored) / read(1));
  }
  if (dice.chance(0.3)) {
    nest.tensor("z", TensorRole::output, {"R", "C"});
    nest.statement("z[i, j] : " + pair, "z[i, j]", {"S[i, j]", largest, total},
                   read(0) - read(1) - apply(ScalarOp::log, read(2)));
  }
  Nest made = dice.chance(0.7) ? with_positive_scalars(nest.build()) : nest.build();
  for (Statement& statement : made.statements) compact(statement);
  drop_unused(made);
  return made;
}

/// Sums of products with a factor of their own for each row, in plain sight or hidden in a temporary.
inline Nest some_weighted_sum(Dice& dice) {
  const ElementType stored = some_float(dice, 0.5);
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  NestBuilder nest("weighted", {{"R", 3}, {"C", 5}});
  nest.tensor("w", TensorRole::input, {"R"}).tensor("x", TensorRole::input, {"R", "C"}).tensor("g", TensorRole::input, {"C"});
  nest.tensor("p", TensorRole::temporary, {"R", "C"}, stored).tensor("sum", TensorRole::output, {"R"});
  const ScalarExpr count = ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  const ScalarExpr large = number(dice.of<double>({0.25, 3, 1e30, 1e-30}));
  const std::vector<ScalarExpr> factors{read(0) * read(1),
                                        read(1) / read(0),
                                        (read(1) * large) * read(0),
                                        read(1) / count,
                                        read(1) * apply(ScalarOp::tanh, read(0)),
                                        (read(1) * read(0)) / read(0),
                                        read(1) * number(2),
                                        (read(1) * read(1)) / ScalarExpr::make(ScalarOp::max, {read(0), number(1)})};
  const ScalarExpr product = dice.of(factors);
  const bool hidden = dice.chance(0.5);
  if (hidden) nest.statement("p[i, j] : " + pair, "p[i, j]", {"w[i]", "x[i, j]"}, narrowed(stored, product), std::nullopt, {"C"});
  nest.statement("sum_init[i] : " + row, "sum[i]", {}, number(0));
  if (hidden) {
    nest.statement("sum_update[i, j] : " + pair, "sum[i]", {"p[i, j]", "g[j]"}, wide(0, stored) * read(1), ReductionOp::add);
  } else {
    nest.statement("sum_update[i, j] : " + pair, "sum[i]", {"w[i]", "x[i, j]"}, product, ReductionOp::add, {"C"});
  }
  return nest.build();
}

/// Reductions of terms that a select replaces, or multiplies, by constants.
inline Nest some_masked_reduction(Dice& dice) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  const ReductionOp op =
      dice.of<ReductionOp>({ReductionOp::add, ReductionOp::add, ReductionOp::max, ReductionOp::min, ReductionOp::mul});
  const double neutral = neutral_element(op, ElementType::f32);
  NestBuilder nest("masked", {{"R", 4}, {"C", 4}});
  nest.tensor("x", TensorRole::input, {"R", "C"}).tensor("v", TensorRole::input, {"C"}).tensor("w", TensorRole::input, {"R"});
  nest.tensor("t", TensorRole::temporary, {"R", "C"}).tensor("r", TensorRole::output, {"R"});
  const auto choose = [&](const ScalarExpr& yes, const ScalarExpr& no) {
    return ScalarExpr::make(ScalarOp::select, {some_mask(dice), yes, no});
  };
  const std::vector<ScalarExpr> terms{choose(read(0), number(neutral)),
                                      choose(read(0), number(0)) * read(1),
                                      choose(number(1), number(0)) / read(0),
                                      choose(read(0), number(0)) / read(2),
                                      apply(ScalarOp::exp, choose(read(0), number(-infinity())) - read(2)),
                                      choose(read(0), number(-infinity())) + read(1),
                                      read(0) * number(0),
                                      choose(number(0), read(1)) / (read(0) * read(0) + number(1))};
  nest.statement("t[i, j] : " + pair, "t[i, j]", {"x[i, j]", "v[j]", "w[i]"}, dice.of(terms), std::nullopt, {"j", "i"});
  nest.statement("r_init[i] : " + row, "r[i]", {}, number(neutral));
  nest.statement("r_update[i, j] : " + pair, "r[i]", {"t[i, j]", "v[j]"}, dice.chance(0.3) ? read(0) * read(1) : read(0), op);
  return nest.build();
}

/// Quotients by values that a row shares, and chains of constants.
inline Nest some_quotients(Dice& dice) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  NestBuilder nest("quotients", {{"R", 3}, {"C", 4}});
  nest.tensor("x", TensorRole::input, {"R", "C"}).tensor("d", TensorRole::input, {"R"}).tensor("l", TensorRole::temporary, {"R"});
  nest.tensor("y", TensorRole::output, {"R", "C"}).tensor("c", TensorRole::output, {"R", "C"});
  const ScalarExpr size = apply(ScalarOp::abs, read(0));
  const std::vector<ScalarExpr> terms{size, read(0) * read(0), apply(ScalarOp::exp, read(0)), apply(ScalarOp::tanh, read(0))};
  nest.statement("l_init[i] : " + row, "l[i]", {}, number(0));
  nest.statement("l_update[i, j] : " + pair, "l[i]", {"x[i, j]"}, dice.of(terms), ReductionOp::add);
  const std::vector<ScalarExpr> divisors{read(1), read(2), apply(ScalarOp::sqrt, read(2)), read(2) + number(1e-5),
                                         apply(ScalarOp::sqrt, read(1) * read(1) + number(1e-6))};
  nest.statement("y[i, j] : " + pair, "y[i, j]", {"x[i, j]", "l[i]", "d[i]"}, read(0) / dice.of(divisors));
  ScalarExpr chain = read(0);
  for (int k = 0; k < 4; ++k) {
    const ScalarExpr c =
        number(dice.of<double>({0, 1, 2, 0.5, 1024, 0x1p-60, 1e38, 1e-38, kFarthest, infinity(), -infinity(), -1}));
    const ScalarOp op =
        dice.of<ScalarOp>({ScalarOp::mul, ScalarOp::mul, ScalarOp::div, ScalarOp::add, ScalarOp::sub, ScalarOp::max});
    chain = dice.chance(0.8) ? ScalarExpr::make(op, {chain, c}) : ScalarExpr::make(op, {c, chain});
  }
  nest.statement("c[i, j] : " + pair, "c[i, j]", {"x[i, j]"}, chain);
  return nest.build();
}

/// Sums of squared differences of rows, of two tensors or of one, and what is made of them.
inline Nest some_distances(Dice& dice) {
  const ElementType type = dice.chance(0.5) ? ElementType::f16 : ElementType::bf16;
  const std::string pair = "0 <= i < R and 0 <= j < R" + std::string(dice.chance(0.3) ? " and j <= i" : "");
  const ScalarExpr gap = wide(0, type) - wide(1, type), d = read(0);
  NestBuilder nest("distances", {{"R", 4}, {"C", 5}});
  nest.tensor("x", TensorRole::input, {"R", "C"}, type).tensor("y", TensorRole::input, {"R", "C"}, type);
  nest.tensor("sum", TensorRole::temporary, {"R", "R"}).tensor("out", TensorRole::output, {"R", "R"});
  nest.statement("sum_init[i, j] : " + pair, "sum[i, j]", {}, number(0));
  nest.statement("sum_update[i, j, k] : " + pair + " and 0 <= k < C", "sum[i, j]",
                 {"x[i, k]", dice.chance(0.3) ? "x[j, k]" : "y[j, k]"}, gap * gap, ReductionOp::add);
  nest.statement(
      "out[i, j] : " + pair, "out[i, j]", {"sum[i, j]"},
      dice.of<ScalarExpr>({d, apply(ScalarOp::exp, d * number(-0.5)), apply(ScalarOp::sqrt, d), number(1) / (d + number(1))}));
  return nest.build();
}

/// Sums of products of three factors and more.
inline Nest some_chain(Dice& dice) {
  const ElementType type = dice.of<ElementType>({ElementType::f16, ElementType::bf16, ElementType::f32});
  const ScalarExpr x = wide(0, type), m = wide(1, type), y = wide(2, type);
  switch (dice.below(4)) {
    case 0:
      return batched_forms(type);
    case 1:
      return chained_matrices(type);
    default:
      return quadratic_form({.type = type,
                             .mask = dice.of<std::string>({"", " and j <= i", " and i <= j + u", " and i + j < I"}),
                             .rows = dice.of<std::string>({"x", "y"}),
                             .value = dice.of<ScalarExpr>({x * m * y, x * (m * y), x * y * m, number(-0.5) * y * m * x})});
  }
}

inline Nest some_nest(Dice& dice) {
  switch (dice.below(11)) {
    case 0:
      if (dice.chance(0.4)) return channel_norm(dice.chance(0.5) ? "S" : "3");
      return dice.chance(0.5) ? row_norm() : late_division_norm(dice.chance(0.5) ? TensorRole::output : TensorRole::temporary);
    case 1:
      return some_quotients(dice);
    case 2:
    case 3:
      return some_masked_reduction(dice);
    case 4:
      return some_weighted_sum(dice);
    case 5:
      if (dice.chance(0.5)) return some_distances(dice);
      return exponential_sums(dice.of<ElementType>({ElementType::f16, ElementType::bf16}),
                              dice.of<ScalarOp>({ScalarOp::exp, ScalarOp::exp2}));
    case 6:
      return some_chain(dice);
    default:
      return some_softmax(dice);
  }
}

/// Inputs of which some elements, or whole rows, are special. Scores (T, B) may be as large as numbers are; others leave sums and
/// products room. Those in `finite`, which a mask may multiply by 0, have neither infinities nor NaN.
inline Memory special_inputs(const Nest& nest, const Sizes& sizes, Dice& dice, const std::set<std::string>& finite) {
  Memory memory = Interpreter::random_inputs(nest, sizes, dice.seed());
  const double inf = infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double rate = dice.of<double>({0, 0.05, 0.3, 0.7});
  const bool chain = std::set<std::string>{"quadratic_form", "batched_forms", "chained_matrices"}.contains(nest.op);
  const bool multiplies = std::any_of(nest.statements.begin(), nest.statements.end(),
                                      [](const Statement& statement) { return statement.reduction == ReductionOp::mul; });
  for (auto& [name, elements] : memory) {
    const bool score = name == "T" || name == "B";
    std::vector<double> specials{0, -0.0, 1e15, -1e15, 1e-15};
    if (score) specials = {0, -0.0, 1e30, -1e30, 1e-40, kFarthest, -kFarthest, -kFarthest};
    if (nest.op == "quotients") specials = {0, -0.0, 1e30, -1e30, 1e-40, 1e-20, kFarthest};
    const bool masked = finite.contains(name);
    // Finite in 16 bits too; and products of terms overflow in no order.
    if ((masked && nest.tensor(name).type == ElementType::f16) || multiplies || chain) specials = {0, -0.0, 1e4, -1e4, 1e-4};
    if (!masked) specials.insert(specials.end(), {inf, -inf, -inf, nan});
    const double same = dice.of(specials);
    const std::int64_t special_row = dice.chance(0.3) ? dice.below(4) : -1;
    const ElementType type = nest.tensor(name).type;
    for (const Index& index : indices_of(elements)) {
      double& value = elements.at(index);
      value = dice.uniform(-2, 2);
      if (dice.chance(rate)) value = dice.of(specials);
      if (!index.empty() && index[0] == special_row) value = same;
      if (type != ElementType::f32)
        value = evaluate(
            ScalarExpr::cast(type, number(value)), [](int) { return 0.0; }, [](int) { return 0; },
            [](const std::string&) { return 0.0; });
    }
  }
  return memory;
}

}  // namespace nestor::samples
