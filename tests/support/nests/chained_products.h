// Sums of products of three factors and more, as einsums of several operands are written.
#pragma once

#include "support/nests/sample_nests.h"

#include <string>
#include <vector>

namespace nestor::samples {

/// A read in f32.
inline ScalarExpr wide(int ordinal, ElementType type) {
  return type == ElementType::f32 ? read(ordinal, type) : ScalarExpr::cast(ElementType::f32, read(ordinal, type));
}

/// What a sum of terms in `value` over i and j has, for each u of N: reads are x[u, i], m[i, j] and y[u, j]. `mask`: further conditions.
struct QuadraticForm {
  ElementType type = ElementType::f16;
  std::string mask{}, rows = "y";  ///< the tensor that is read for y
  ScalarExpr value{};              ///< none: the product of all three, in this order
  ReductionOp reduction = ReductionOp::add;
  std::int64_t left = 7, right = 6;
};

inline Nest quadratic_form(const QuadraticForm& form = {}) {
  const ElementType type = form.type;
  const std::string points = "0 <= u < N and 0 <= i < I and 0 <= j < J" + form.mask, right = form.rows == "x" ? "I" : "J";
  const ScalarExpr value = form.value.defined() ? form.value : wide(0, type) * wide(1, type) * wide(2, type);
  NestBuilder builder("quadratic_form", {{"N", 5}, {"I", form.left}, {"J", form.right}});
  builder.tensor("x", TensorRole::input, {"N", "I"}, type).tensor("m", TensorRole::input, {"I", right}, type);
  if (form.rows != "x") builder.tensor("y", TensorRole::input, {"N", "J"}, type);
  const std::string below = form.rows == "x" ? " and j < I" : "";
  return builder.tensor("sums", TensorRole::temporary, {"N"})
      .tensor("out", TensorRole::output, {"N"})
      .statement("init[u] : 0 <= u < N", "sums[u]", {}, number(0))
      .statement("sum[u, i, j] : " + points + below, "sums[u]", {"x[u, i]", "m[i, j]", form.rows + "[u, j]"}, value,
                 form.reduction)
      .statement("out[u] : 0 <= u < N", "out[u]", {"sums[u]"}, read(0))
      .build();
}

/// out[u, k] = sum over i, j of x[u, i] m[i, j] y[j, k], a product of three matrices as one sum, with large sizes as defaults. `mask`: further
/// conditions.
inline Nest chained_matrices(ElementType type = ElementType::f32, const std::string& mask = "", ScalarExpr value = {}) {
  const std::string element = "0 <= u < N and 0 <= k < K";
  if (!value.defined()) value = wide(0, type) * wide(1, type) * wide(2, type);
  return NestBuilder("chained_matrices", {{"N", 64}, {"I", 48}, {"J", 40}, {"K", 56}})
      .tensor("x", TensorRole::input, {"N", "I"}, type)
      .tensor("m", TensorRole::input, {"I", "J"}, type)
      .tensor("y", TensorRole::input, {"J", "K"}, type)
      .tensor("out", TensorRole::output, {"N", "K"})
      .statement("init[u, k] : " + element, "out[u, k]", {}, number(0))
      .statement("sum[u, k, i, j] : " + element + " and 0 <= i < I and 0 <= j < J" + mask, "out[u, k]",
                 {"x[u, i]", "m[i, j]", "y[j, k]"}, value, ReductionOp::add)
      .build();
}

/// out[u, v] = sum over l and z < 128 of x[u, 128 l + z] w[v, 128 l + z] a[u, l] b[v, l]: operands with a scale for each block of their terms.
inline Nest products_with_scales(ElementType type = ElementType::f16) {
  const std::string element = "0 <= u < N and 0 <= v < M";
  return NestBuilder("products_with_scales", {{"N", 4096}, {"M", 2048}, {"L", 16}})
      .tensor("x", TensorRole::input, {"N", "128 * L"}, type)
      .tensor("w", TensorRole::input, {"M", "128 * L"}, type)
      .tensor("a", TensorRole::input, {"N", "L"})
      .tensor("b", TensorRole::input, {"M", "L"})
      .tensor("sums", TensorRole::temporary, {"N", "M"})
      .tensor("out", TensorRole::output, {"N", "M"}, type)
      .statement("init[u, v] : " + element, "sums[u, v]", {}, number(0))
      .statement("sum[u, v, l, z] : " + element + " and 0 <= l < L and 0 <= z < 128", "sums[u, v]",
                 {"x[u, 128 l + z]", "w[v, 128 l + z]", "a[u, l]", "b[v, l]"}, wide(0, type) * wide(1, type) * read(2) * read(3),
                 ReductionOp::add)
      .statement("out[u, v] : " + element, "out[u, v]", {"sums[u, v]"}, ScalarExpr::cast(type, read(0)))
      .build();
}

/// out[u, k] = sum over j of (sum over i of x[u, i] m[i, j]) y[j, k], with `terms` values of i, which are many by default. `one_sum`: over i and j.
inline Nest long_chain(ElementType type = ElementType::bf16, bool one_sum = false, const std::string& terms = "I") {
  const std::string element = " : 0 <= u < N and 0 <= k < K", inner = " : 0 <= u < N and 0 <= j < J";
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"N", 2048}, {"J", 64}, {"K", 2048}};
  if (terms == "I") sizes.emplace_back("I", 2048);
  NestBuilder builder("long_chain", sizes);
  builder.tensor("x", TensorRole::input, {"N", terms}, type)
      .tensor("m", TensorRole::input, {terms, "J"}, type)
      .tensor("y", TensorRole::input, {"J", "K"}, type);
  if (!one_sum) {
    builder.tensor("t", TensorRole::temporary, {"N", "J"})
        .statement("t_init[u, j]" + inner, "t[u, j]", {}, number(0))
        .statement("t[u, j, i]" + inner + " and 0 <= i < " + terms, "t[u, j]", {"x[u, i]", "m[i, j]"},
                   wide(0, type) * wide(1, type), ReductionOp::add);
  }
  builder.tensor("sums", TensorRole::temporary, {"N", "K"})
      .tensor("out", TensorRole::output, {"N", "K"}, type)
      .statement("init[u, k]" + element, "sums[u, k]", {}, number(0));
  if (one_sum) {
    builder.statement("sum[u, k, j, i]" + element + " and 0 <= j < J and 0 <= i < " + terms, "sums[u, k]",
                      {"x[u, i]", "m[i, j]", "y[j, k]"}, wide(0, type) * wide(1, type) * wide(2, type), ReductionOp::add);
  } else {
    builder.statement("sum[u, k, j]" + element + " and 0 <= j < J", "sums[u, k]", {"t[u, j]", "y[j, k]"}, read(0) * wide(1, type),
                      ReductionOp::add);
  }
  return builder.statement("out[u, k]" + element, "out[u, k]", {"sums[u, k]"}, ScalarExpr::cast(type, read(0))).build();
}

/// out[u, k] = sum over i of x[u, i] w[k, i] with w[k, i] = sum over j of y[k, j] m[i, j]: the product of the weights comes first.
inline Nest weights_first(ElementType type = ElementType::bf16, std::int64_t terms = 64) {
  const std::string element = " : 0 <= u < N and 0 <= k < K", inner = " : 0 <= k < K and 0 <= i < I";
  return NestBuilder("weights_first", {{"N", 2048}, {"I", 2048}, {"J", terms}, {"K", 2048}})
      .tensor("x", TensorRole::input, {"N", "I"}, type)
      .tensor("m", TensorRole::input, {"I", "J"}, type)
      .tensor("y", TensorRole::input, {"K", "J"}, type)
      .tensor("w", TensorRole::temporary, {"K", "I"})
      .tensor("sums", TensorRole::temporary, {"N", "K"})
      .tensor("out", TensorRole::output, {"N", "K"}, type)
      .statement("w_init[k, i]" + inner, "w[k, i]", {}, number(0))
      .statement("w[k, i, j]" + inner + " and 0 <= j < J", "w[k, i]", {"y[k, j]", "m[i, j]"}, wide(0, type) * wide(1, type),
                 ReductionOp::add)
      .statement("init[u, k]" + element, "sums[u, k]", {}, number(0))
      .statement("sum[u, k, i]" + element + " and 0 <= i < I", "sums[u, k]", {"x[u, i]", "w[k, i]"}, wide(0, type) * read(1),
                 ReductionOp::add)
      .statement("out[u, k]" + element, "out[u, k]", {"sums[u, k]"}, ScalarExpr::cast(type, read(0)))
      .build();
}

/// out[e, o] = sum over t, i, j of angle[e, t, i] w[o, i, j] message[e, t, j], for `outputs` values of o and so many of t, i and j.
struct Messages {
  ElementType type = ElementType::f16;
  std::string turns = "3", angles = "2", width = "4", outputs = "5", mask = "";
  ScalarExpr value = {};
};
inline Nest directional_messages(const Messages& m = {}) {
  const std::string element = "0 <= e < E and 0 <= o < " + m.outputs;
  const auto terms = " and 0 <= t < " + m.turns + " and 0 <= i < " + m.angles + " and 0 <= j < " + m.width + m.mask;
  const ScalarExpr value = m.value.defined() ? m.value : wide(0, m.type) * wide(1, m.type) * wide(2, m.type);
  return NestBuilder("messages", {{"E", 64}, {"T", 3}, {"A", 2}})
      .tensor("angle", TensorRole::input, {"E", m.turns, m.angles}, m.type)
      .tensor("w", TensorRole::input, {m.outputs, m.angles, m.width}, m.type)
      .tensor("message", TensorRole::input, {"E", m.turns, m.width}, m.type)
      .tensor("sums", TensorRole::temporary, {"E", m.outputs})
      .tensor("out", TensorRole::output, {"E", m.outputs})
      .statement("init[e, o] : " + element, "sums[e, o]", {}, number(0))
      .statement("sum[e, o, t, i, j] : " + element + terms, "sums[e, o]", {"angle[e, t, i]", "w[o, i, j]", "message[e, t, j]"},
                 value, ReductionOp::add)
      .statement("out[e, o] : " + element, "out[e, o]", {"sums[e, o]"}, read(0))
      .build();
}

/// out[p, u] = sum over q, t, s of x[p, q, t, s] b[q, u] c[t, u] d[s, u].
inline Nest products_of_four(ElementType type = ElementType::f16) {
  const std::string element = "0 <= p < P and 0 <= u < U";
  return NestBuilder("products_of_four", {{"P", 4}, {"Q", 3}, {"T", 5}, {"S", 6}, {"U", 3}})
      .tensor("x", TensorRole::input, {"P", "Q", "T", "S"}, type)
      .tensor("b", TensorRole::input, {"Q", "U"}, type)
      .tensor("c", TensorRole::input, {"T", "U"}, type)
      .tensor("d", TensorRole::input, {"S", "U"}, type)
      .tensor("out", TensorRole::output, {"P", "U"})
      .statement("init[p, u] : " + element, "out[p, u]", {}, number(0))
      .statement("sum[p, u, q, t, s] : " + element + " and 0 <= q < Q and 0 <= t < T and 0 <= s < S", "out[p, u]",
                 {"x[p, q, t, s]", "b[q, u]", "c[t, u]", "d[s, u]"},
                 wide(0, type) * wide(1, type) * wide(2, type) * wide(3, type), ReductionOp::add)
      .build();
}

/// out[b, r] = sum over i, j of 0.5 x[b, r, i] m[b, i, j] y[b, r, j] w[b, r].
inline Nest batched_forms(ElementType type = ElementType::bf16) {
  const std::string element = "0 <= b < B and 0 <= r < R";
  return NestBuilder("batched_forms", {{"B", 2}, {"R", 4}, {"I", 5}, {"J", 3}})
      .tensor("x", TensorRole::input, {"B", "R", "I"}, type)
      .tensor("m", TensorRole::input, {"B", "I", "J"}, type)
      .tensor("y", TensorRole::input, {"B", "R", "J"}, type)
      .tensor("w", TensorRole::input, {"B", "R"})
      .tensor("out", TensorRole::output, {"B", "R"})
      .statement("init[b, r] : " + element, "out[b, r]", {}, number(0))
      .statement("sum[b, r, i, j] : " + element + " and 0 <= i < I and 0 <= j < J", "out[b, r]",
                 {"x[b, r, i]", "m[b, i, j]", "y[b, r, j]", "w[b, r]"},
                 number(0.5) * wide(0, type) * (wide(1, type) * wide(2, type)) * read(3), ReductionOp::add)
      .build();
}

}  // namespace nestor::samples
