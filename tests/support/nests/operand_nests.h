// Products whose operands no tile can be made of as they lie, and a product that others share.
#pragma once

#include "poly/nest/nest_json.h"
#include "support/nests/sample_nests.h"

#include <functional>
#include <limits>
#include <string>

namespace nestor::samples {

inline ScalarExpr product_of_halves(ElementType type = ElementType::f16) {
  return ScalarExpr::cast(ElementType::f32, read(0, type)) * ScalarExpr::cast(ElementType::f32, read(1, type));
}

/// w[i, j] = 1 / (1 + max(s[i] t[j], 0)); out[i, d] = (sum over j of w[i, j] x[j, d]) / sum over j of w[i, j]: an operand that is computed, in f32,
/// and needed as it is besides, as in attention over a graph's nodes.
inline Nest computed_weights(const std::string& mask = "") {
  const std::string pair = "0 <= i < N and 0 <= j < N" + mask, element = "0 <= i < N and 0 <= d < D";
  return NestBuilder("computed_weights", {{"N", 7}, {"D", 5}})
      .tensor("s", TensorRole::input, {"N"})
      .tensor("t", TensorRole::input, {"N"})
      .tensor("x", TensorRole::input, {"N", "D"}, ElementType::f16)
      .tensor("w", TensorRole::temporary, {"N", "N"})
      .tensor("total", TensorRole::temporary, {"N"})
      .tensor("sums", TensorRole::temporary, {"N", "D"})
      .tensor("out", TensorRole::output, {"N", "D"}, ElementType::f16)
      .statement("w[i, j] : " + pair, "w[i, j]", {"s[i]", "t[j]"},
                 number(1) / (number(1) + ScalarExpr::make(ScalarOp::max, {read(0) * read(1), number(0)})))
      .statement("total_init[i] : 0 <= i < N", "total[i]", {}, number(0))
      .statement("total[i, j] : " + pair, "total[i]", {"w[i, j]"}, read(0), ReductionOp::add)
      .statement("init[i, d] : " + element, "sums[i, d]", {}, number(0))
      .statement("sum[i, d, j] : 0 <= d < D and " + pair, "sums[i, d]", {"w[i, j]", "x[j, d]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)), ReductionOp::add)
      .statement("out[i, d] : " + element, "out[i, d]", {"sums[i, d]", "total[i]"},
                 ScalarExpr::cast(ElementType::f16, read(0) / read(1)))
      .build();
}

/// out[i, j] = sum over k of (x[i, k] - y[j, k])^2, of pairs that `mask` leaves.
inline Nest squared_distances(ElementType type = ElementType::bf16, const std::string& mask = "") {
  const std::string pair = "0 <= i < M and 0 <= j < N" + mask;
  const ScalarExpr gap = ScalarExpr::cast(ElementType::f32, read(0, type)) - ScalarExpr::cast(ElementType::f32, read(1, type));
  return NestBuilder("squared_distances", {{"M", 20}, {"N", 20}, {"K", 24}})
      .tensor("x", TensorRole::input, {"M", "K"}, type)
      .tensor("y", TensorRole::input, {"N", "K"}, type)
      .tensor("sums", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("init[i, j] : " + pair, "sums[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + pair + " and 0 <= k < K", "sums[i, j]", {"x[i, k]", "y[j, k]"}, gap * gap, ReductionOp::add)
      .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, read(0))
      .build();
}

/// r[t, o] = sum over users a and ranks of low[t, rank] up[a, o, rank] where a is the token's own; `ranks`: "1" has one dim of terms, a.
inline Nest adapted_products(ElementType type = ElementType::bf16, const std::string& ranks = "4",
                             const std::string& users = "A") {
  const auto wide = [&](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, type)); };
  const ScalarExpr own = ScalarExpr::make(ScalarOp::eq, {read(0, ElementType::i32), ScalarExpr::index(0)});
  const std::string pair = "0 <= t < T and 0 <= o < O", user = pair + " and 0 <= a < " + users;
  const bool one = ranks == "1";
  return NestBuilder("adapted_products", {{"T", 9}, {"O", 7}, {"A", 3}})
      .tensor("user", TensorRole::input, {"T"}, ElementType::i32)
      .tensor("low", TensorRole::input, {"T", ranks}, type)
      .tensor("up", TensorRole::input, {users, "O", ranks}, type)
      .tensor("sums", TensorRole::temporary, {"T", "O"})
      .tensor("out", TensorRole::output, {"T", "O"})
      .statement("init[t, o] : " + pair, "sums[t, o]", {}, number(0))
      .statement(one ? "sum[t, o, a] : " + user : "sum[t, o, a, r] : " + user + " and 0 <= r < " + ranks, "sums[t, o]",
                 {"user[t]", one ? "low[t, 0]" : "low[t, r]", one ? "up[a, o, 0]" : "up[a, o, r]"},
                 ScalarExpr::make(ScalarOp::select, {own, wide(1) * wide(2), number(0)}), ReductionOp::add, {"a"})
      .statement("out[t, o] : " + pair, "out[t, o]", {"sums[t, o]"}, read(0))
      .build();
}

/// The same with the differences in a tensor of their own.
inline Nest squares_of_stored_differences() {
  const std::string pair = "0 <= i < M and 0 <= j < N", all = pair + " and 0 <= k < K";
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::bf16)); };
  return NestBuilder("squares_of_stored_differences", {{"M", 20}, {"N", 20}, {"K", 24}})
      .tensor("x", TensorRole::input, {"M", "K"}, ElementType::bf16)
      .tensor("y", TensorRole::input, {"N", "K"}, ElementType::bf16)
      .tensor("apart", TensorRole::temporary, {"M", "N", "K"})
      .tensor("sums", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("apart[i, j, k] : " + all, "apart[i, j, k]", {"x[i, k]", "y[j, k]"}, wide(0) - wide(1))
      .statement("init[i, j] : " + pair, "sums[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + all, "sums[i, j]", {"apart[i, j, k]"}, read(0) * read(0), ReductionOp::add)
      .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, read(0))
      .build();
}

/// out[i, j] = finish(sum over k of x[i, k] y[j, k]), all in f32.
inline Nest f32_product(const std::function<ScalarExpr(const ScalarExpr&)>& finish = {}, const std::string& mask = "") {
  const std::string pair = "0 <= i < M and 0 <= j < N";
  return NestBuilder("f32_product", {{"M", 2048}, {"N", 2048}, {"K", 2048}})
      .tensor("x", TensorRole::input, {"M", "K"})
      .tensor("y", TensorRole::input, {"N", "K"})
      .tensor("sums", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("init[i, j] : " + pair, "sums[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + pair + " and 0 <= k < K" + mask, "sums[i, j]", {"x[i, k]", "y[j, k]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, finish ? finish(read(0)) : read(0))
      .build();
}

/// out[i, j] = sum over l < 3 and k of x[l, i, k] y[j, l, k], all in f32. `tap`: what stands for l.
inline Nest f32_taps(const std::string& tap = "l") {
  const std::string pair = "0 <= i < M and 0 <= j < N", terms = " and 0 <= " + tap + " < 3 and 0 <= k < K";
  return NestBuilder("f32_taps", {{"M", 2048}, {"N", 1024}, {"K", 512}})
      .tensor("x", TensorRole::input, {"3", "M", "K"})
      .tensor("y", TensorRole::input, {"N", "3", "K"})
      .tensor("sums", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("init[i, j] : " + pair, "sums[i, j]", {}, number(0))
      .statement("sum[i, j, l, k] : " + pair + terms, "sums[i, j]", {"x[" + tap + ", i, k]", "y[j, " + tap + ", k]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, read(0))
      .build();
}

/// out[i, d] = sum over j of w[i, j] v[j, d] over the sum of w[i, j], with w[i, j] = sum over e < 64 of q[i, e] k[j, e] in f32: linear attention,
/// whose weights may be as small as elements of q are.
inline Nest linear_attention(ElementType type = ElementType::f16) {
  const std::string pair = "0 <= h < H and 0 <= i < N and 0 <= j < N", row = "0 <= h < H and 0 <= i < N",
                    element = row + " and 0 <= d < 64";
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, type)); };
  NestBuilder builder("linear_attention", {{"H", 16}, {"N", 2048}});
  for (const char* input : {"q", "k", "v"}) builder.tensor(input, TensorRole::input, {"H", "N", "64"}, type);
  return builder.tensor("w", TensorRole::temporary, {"H", "N", "N"})
      .tensor("weighted", TensorRole::temporary, {"H", "N", "64"})
      .tensor("total", TensorRole::temporary, {"H", "N"})
      .tensor("out", TensorRole::output, {"H", "N", "64"}, type)
      .statement("w_init[h, i, j] : " + pair, "w[h, i, j]", {}, number(0))
      .statement("w[h, i, j, e] : " + pair + " and 0 <= e < 64", "w[h, i, j]", {"q[h, i, e]", "k[h, j, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("weighted_init[h, i, d] : " + element, "weighted[h, i, d]", {}, number(0))
      .statement("weighted[h, i, d, j] : " + element + " and 0 <= j < N", "weighted[h, i, d]", {"w[h, i, j]", "v[h, j, d]"},
                 read(0) * wide(1), ReductionOp::add)
      .statement("total_init[h, i] : " + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j] : " + pair, "total[h, i]", {"w[h, i, j]"}, read(0), ReductionOp::add)
      .statement("out[h, i, d] : " + element, "out[h, i, d]", {"weighted[h, i, d]", "total[h, i]"},
                 ScalarExpr::cast(type, read(0) / read(1)))
      .build();
}

/// Attention of Q queries on keys in an image of Y x `across` places, with a bias of the key's row for each query:
/// score[h, i, y, x] = sum over e of q[h, i, e] k[h, y, x, e] / 8 + by_row[h, i, y]. `across` 0: a size X that is not known.
inline Nest image_attention(int across = 6) {
  const ElementType f16 = ElementType::f16;
  const auto wide = [&](int k) { return ScalarExpr::cast(ElementType::f32, read(k, f16)); };
  const std::string last = across > 0 ? std::to_string(across) : "X", row = "0 <= h < H and 0 <= i < Q",
                    key = "0 <= y < Y and 0 <= x < " + last, pair = row + " and " + key, element = row + " and 0 <= d < 64";
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"H", 16}, {"Q", 1024}, {"Y", 32}};
  if (across == 0) sizes.emplace_back("X", 32);
  NestBuilder builder("image_attention", {sizes.begin(), sizes.end()});
  builder.tensor("q", TensorRole::input, {"H", "Q", "64"}, f16).tensor("by_row", TensorRole::input, {"H", "Q", "Y"});
  for (const char* input : {"k", "v"}) builder.tensor(input, TensorRole::input, {"H", "Y", last, "64"}, f16);
  for (const char* tile : {"dot", "score", "power"}) builder.tensor(tile, TensorRole::temporary, {"H", "Q", "Y", last});
  for (const char* value : {"top", "total"}) builder.tensor(value, TensorRole::temporary, {"H", "Q"});
  return builder.tensor("weighted", TensorRole::temporary, {"H", "Q", "64"})
      .tensor("out", TensorRole::output, {"H", "Q", "64"}, f16)
      .statement("dot_init[h, i, y, x] : " + pair, "dot[h, i, y, x]", {}, number(0))
      .statement("dot[h, i, y, x, e] : " + pair + " and 0 <= e < 64", "dot[h, i, y, x]", {"q[h, i, e]", "k[h, y, x, e]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("score[h, i, y, x] : " + pair, "score[h, i, y, x]", {"dot[h, i, y, x]", "by_row[h, i, y]"},
                 number(0.125) * read(0) + read(1))
      .statement("top_init[h, i] : " + row, "top[h, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[h, i, y, x] : " + pair, "top[h, i]", {"score[h, i, y, x]"}, read(0), ReductionOp::max)
      .statement("power[h, i, y, x] : " + pair, "power[h, i, y, x]", {"score[h, i, y, x]", "top[h, i]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)}))
      .statement("total_init[h, i] : " + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, y, x] : " + pair, "total[h, i]", {"power[h, i, y, x]"}, read(0), ReductionOp::add)
      .statement("weighted_init[h, i, d] : " + element, "weighted[h, i, d]", {}, number(0))
      .statement("weighted[h, i, d, y, x] : " + element + " and " + key, "weighted[h, i, d]",
                 {"power[h, i, y, x]", "v[h, y, x, d]"}, read(0) * wide(1), ReductionOp::add)
      .statement("out[h, i, d] : " + element, "out[h, i, d]", {"weighted[h, i, d]", "total[h, i]"},
                 ScalarExpr::cast(f16, read(0) / read(1)))
      .build();
}

/// out = x s s, with s = y y and all of them M x M, row-major, in f32: a chain of products, two of which share an operand.
inline Nest f32_chain() {
  const std::string pair = "0 <= i < M and 0 <= j < M";
  NestBuilder builder("f32_chain", {{"M", 1024}});
  for (const char* input : {"x", "y"}) builder.tensor(input, TensorRole::input, {"M", "M"});
  for (const char* sum : {"square", "half", "sums"}) builder.tensor(sum, TensorRole::temporary, {"M", "M"});
  builder.tensor("out", TensorRole::output, {"M", "M"});
  const auto product = [&](const std::string& name, const std::string& a, const std::string& b) {
    builder.statement(name + "_init[i, j] : " + pair, name + "[i, j]", {}, number(0));
    builder.statement(name + "[i, j, k] : " + pair + " and 0 <= k < M", name + "[i, j]", {a + "[i, k]", b + "[k, j]"},
                      read(0) * read(1), ReductionOp::add);
  };
  product("square", "y", "y");
  product("half", "x", "square");
  product("sums", "half", "square");
  return builder.statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, read(0)).build();
}

/// out[i, d] = softmax over j of -(sum over e of (q[i, e] - k[j, e])^2) / 8, times v[j, d]; `keys`: the tensor that is read for k. Those of q
/// itself are near for i = j.
inline Nest distance_attention(const std::string& keys = "k") {
  const ElementType f16 = ElementType::f16;
  const std::string pair = "0 <= h < H and 0 <= i < N and 0 <= j < N", row = "0 <= h < H and 0 <= i < N",
                    element = row + " and 0 <= d < 64";
  const ScalarExpr gap = ScalarExpr::cast(ElementType::f32, read(0, f16)) - ScalarExpr::cast(ElementType::f32, read(1, f16));
  NestBuilder builder("distance_attention", {{"H", 2}, {"N", 2048}});
  for (const std::string name : {"q", "k", "v"}) {
    if (name != "k" || keys == "k") builder.tensor(name, TensorRole::input, {"H", "N", "64"}, f16);
  }
  return builder.tensor("sums", TensorRole::temporary, {"H", "N", "N"})
      .tensor("score", TensorRole::temporary, {"H", "N", "N"})
      .tensor("top", TensorRole::temporary, {"H", "N"})
      .tensor("power", TensorRole::temporary, {"H", "N", "N"})
      .tensor("total", TensorRole::temporary, {"H", "N"})
      .tensor("mixed", TensorRole::temporary, {"H", "N", "64"})
      .tensor("out", TensorRole::output, {"H", "N", "64"}, f16)
      .statement("init[h, i, j] : " + pair, "sums[h, i, j]", {}, number(0))
      .statement("sum[h, i, j, e] : " + pair + " and 0 <= e < 64", "sums[h, i, j]", {"q[h, i, e]", keys + "[h, j, e]"}, gap * gap,
                 ReductionOp::add)
      .statement("score[h, i, j] : " + pair, "score[h, i, j]", {"sums[h, i, j]"}, read(0) * number(-0.125))
      .statement("top_init[h, i] : " + row, "top[h, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[h, i, j] : " + pair, "top[h, i]", {"score[h, i, j]"}, read(0), ReductionOp::max)
      .statement("power[h, i, j] : " + pair, "power[h, i, j]", {"score[h, i, j]", "top[h, i]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)}))
      .statement("total_init[h, i] : " + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j] : " + pair, "total[h, i]", {"power[h, i, j]"}, read(0), ReductionOp::add)
      .statement("mixed_init[h, i, d] : " + element, "mixed[h, i, d]", {}, number(0))
      .statement("mixed[h, i, d, j] : " + element + " and 0 <= j < N", "mixed[h, i, d]", {"power[h, i, j]", "v[h, j, d]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, f16)), ReductionOp::add)
      .statement("out[h, i, d] : " + element, "out[h, i, d]", {"mixed[h, i, d]", "total[h, i]"},
                 ScalarExpr::cast(f16, read(0) / read(1)))
      .build();
}

/// out[i, j, l] = (sum over q of a[i, q, l] b[j, q, l]) gate[i, j, l]: products side by side.
inline Nest interleaved_products(ElementType type = ElementType::f16) {
  const std::string element = "0 <= i < N and 0 <= j < N and 0 <= l < L";
  return NestBuilder("interleaved", {{"N", 5}, {"L", 3}})
      .tensor("a", TensorRole::input, {"N", "N", "L"}, type)
      .tensor("b", TensorRole::input, {"N", "N", "L"}, type)
      .tensor("gate", TensorRole::input, {"N", "N", "L"})
      .tensor("sums", TensorRole::temporary, {"N", "N", "L"})
      .tensor("out", TensorRole::output, {"N", "N", "L"}, type)
      .statement("init[i, j, l] : " + element, "sums[i, j, l]", {}, number(0))
      .statement("sum[i, j, l, q] : " + element + " and 0 <= q < N", "sums[i, j, l]", {"a[i, q, l]", "b[j, q, l]"},
                 product_of_halves(type), ReductionOp::add)
      .statement("out[i, j, l] : " + element, "out[i, j, l]", {"sums[i, j, l]", "gate[i, j, l]"},
                 type == ElementType::f32 ? read(0) * read(1) : ScalarExpr::cast(type, read(0) * read(1)))
      .build();
}

/// out[i, d] = sum over j <= i of w[i, j] x[j, d]: the sum leaves out what lies above the diagonal. A computed w is decay[i - j], and
/// nobody writes it there.
inline Nest triangular_product(bool computed = false) {
  const std::string element = "0 <= i < N and 0 <= d < D";
  NestBuilder builder("triangular", {{"N", 7}, {"D", 5}});
  if (computed) builder.tensor("decay", TensorRole::input, {"N"});
  builder.tensor("w", computed ? TensorRole::temporary : TensorRole::input, {"N", "N"}, ElementType::f16)
      .tensor("x", TensorRole::input, {"N", "D"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"N", "D"})
      .tensor("out", TensorRole::output, {"N", "D"}, ElementType::f16);
  if (computed)
    builder.statement("w[i, j] : 0 <= j <= i < N", "w[i, j]", {"decay[i - j]"}, ScalarExpr::cast(ElementType::f16, read(0)));
  return builder.statement("init[i, d] : " + element, "sums[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + element + " and 0 <= j <= i", "sums[i, d]", {"w[i, j]", "x[j, d]"}, product_of_halves(),
                 ReductionOp::add)
      .statement("out[i, d] : " + element, "out[i, d]", {"sums[i, d]"}, ScalarExpr::cast(ElementType::f16, read(0)))
      .build();
}

/// Weights w[i, j] in f32 for j <= i, times x along j and times y along i; `part`: of the second sum.
inline Nest weights_both_ways(const std::string& part = "") {
  const std::string element = "0 <= i < N and 0 <= d < D", inside = " and 0 <= j <= i and i < N";
  const ScalarExpr product = read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
  return NestBuilder("both_ways", {{"N", 7}, {"D", 5}})
      .tensor("decay", TensorRole::input, {"N"})
      .tensor("x", TensorRole::input, {"N", "D"}, ElementType::f16)
      .tensor("y", TensorRole::input, {"N", "D"}, ElementType::f16)
      .tensor("w", TensorRole::temporary, {"N", "N"})
      .tensor("down", TensorRole::temporary, {"N", "D"})
      .tensor("across", TensorRole::temporary, {"N", "D"})
      .tensor("out", TensorRole::output, {"N", "D"}, ElementType::f16)
      .statement("w[i, j] : 0 <= j <= i < N", "w[i, j]", {"decay[i - j]"}, read(0) * read(0))
      .statement("init[i, d] : " + element, "down[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + element + inside, "down[i, d]", {"w[i, j]", "x[j, d]"}, product, ReductionOp::add)
      .statement("init_2[j, d] : 0 <= j < N and 0 <= d < D", "across[j, d]", {}, number(0))
      .statement("sum_2[j, d, i] : 0 <= d < D" + inside + part, "across[j, d]", {"w[i, j]", "y[i, d]"}, product, ReductionOp::add)
      .statement("out[i, d] : " + element, "out[i, d]", {"down[i, d]", "across[i, d]"},
                 ScalarExpr::cast(ElementType::f16, read(0) + read(1)))
      .build();
}

/// out[i, d] = sum over the j beside i of w[i, j] half[j, d], for d <= i: of `half` there is only what the sum needs.
inline Nest banded_product() {
  const std::string element = "0 <= d <= i < N";
  return NestBuilder("banded", {{"N", 7}})
      .tensor("w", TensorRole::input, {"N", "N"}, ElementType::f16)
      .tensor("x", TensorRole::input, {"N", "N"}, ElementType::f16)
      .tensor("half", TensorRole::temporary, {"N", "N"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"N", "N"})
      .tensor("out", TensorRole::output, {"N", "N"}, ElementType::f16)
      .statement("half[j, d] : 0 <= j < N and 0 <= d < N and d <= j + 1", "half[j, d]", {"x[j, d]"}, read(0, ElementType::f16))
      .statement("init[i, d] : " + element, "sums[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + element + " and 0 <= j and i - 1 <= j <= i", "sums[i, d]", {"w[i, j]", "half[j, d]"},
                 product_of_halves(), ReductionOp::add)
      .statement("out[i, d] : " + element, "out[i, d]", {"sums[i, d]"}, ScalarExpr::cast(ElementType::f16, read(0)))
      .build();
}

/// out[i, j] = sum over k of u[i, k] y[j, k], where u[i, k] = x[i, k] times the sum of squares of its row.
inline Nest norm_of_operand() {
  const std::string row = "0 <= i < N", element = row + " and 0 <= k < K", cell = row + " and 0 <= j < N";
  const ScalarExpr wide = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16));
  return NestBuilder("norm_of_operand", {{"N", 7}, {"K", 5}})
      .tensor("x", TensorRole::input, {"N", "K"}, ElementType::f16)
      .tensor("y", TensorRole::input, {"N", "K"}, ElementType::f16)
      .tensor("squares", TensorRole::temporary, {"N"})
      .tensor("u", TensorRole::temporary, {"N", "K"}, ElementType::f16)
      .tensor("out", TensorRole::output, {"N", "N"})
      .statement("squares_init[i] : " + row, "squares[i]", {}, number(0))
      .statement("squares[i, k] : " + element, "squares[i]", {"x[i, k]"}, wide * wide, ReductionOp::add)
      .statement("u[i, k] : " + element, "u[i, k]", {"x[i, k]", "squares[i]"}, ScalarExpr::cast(ElementType::f16, wide * read(1)))
      .statement("out_init[i, j] : " + cell, "out[i, j]", {}, number(0))
      .statement("out[i, j, k] : " + cell + " and 0 <= k < K", "out[i, j]", {"u[i, k]", "y[j, k]"}, product_of_halves(),
                 ReductionOp::add)
      .build();
}

/// out[i, j, g, f] = sum over v of a[v, i, g] b[v, j, f]: rows and columns lie along two indices each. `inner` values of g, `columns` of f.
inline Nest outer_products(const std::string& mask = "", int inner = 3, int columns = 5) {
  const std::string g = std::to_string(inner), f = std::to_string(columns);
  const std::string element = "0 <= i < N and 0 <= j < N and 0 <= g < " + g + " and 0 <= f < " + f + mask;
  return NestBuilder("outer_products", {{"V", 7}, {"N", 4}})
      .tensor("a", TensorRole::input, {"V", "N", g}, ElementType::f16)
      .tensor("b", TensorRole::input, {"V", "N", f}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"N", "N", g, f})
      .tensor("out", TensorRole::output, {"N", "N", g, f}, ElementType::f16)
      .statement("init[i, j, g, f] : " + element, "sums[i, j, g, f]", {}, number(0))
      .statement("sum[i, j, g, f, v] : " + element + " and 0 <= v < V", "sums[i, j, g, f]", {"a[v, i, g]", "b[v, j, f]"},
                 product_of_halves(), ReductionOp::add)
      .statement("out[i, j, g, f] : " + element, "out[i, j, g, f]", {"sums[i, j, g, f]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * number(0.25)))
      .build();
}

/// Selective attention: what the first head's scores add up to is taken from all heads' scores, and a softmax weighs values. `both`: the
/// second head's scores are forgotten, too.
inline Nest forgetting_scores(bool both = false) {
  const std::string row = "0 <= h < H and 0 <= i < N", pair = row + " and 0 <= j <= i", seen = "0 <= i < N and 0 <= j <= i";
  const ScalarExpr first = ScalarExpr::make(ScalarOp::max, {read(0), number(0)}), product = product_of_halves(),
                   term = both ? first + read(1) : first, wide = ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16));
  std::vector<std::string> slices{"raw[0, l, j]"};
  if (both) slices.emplace_back("raw[1, l, j]");
  return NestBuilder("forgetting_scores", {{"H", 4}, {"N", 9}})
      .context(both ? "H >= 2 and N >= 1" : "H >= 1 and N >= 1")
      .tensor("q", TensorRole::input, {"H", "N", "64"}, ElementType::f16)
      .tensor("k", TensorRole::input, {"H", "N", "64"}, ElementType::f16)
      .tensor("v", TensorRole::input, {"H", "N", "64"}, ElementType::f16)
      .tensor("dot", TensorRole::temporary, {"H", "N", "N"})
      .tensor("raw", TensorRole::temporary, {"H", "N", "N"})
      .tensor("forgotten", TensorRole::temporary, {"N", "N"})
      .tensor("score", TensorRole::temporary, {"H", "N", "N"})
      .tensor("top", TensorRole::temporary, {"H", "N"})
      .tensor("power", TensorRole::temporary, {"H", "N", "N"})
      .tensor("total", TensorRole::temporary, {"H", "N"})
      .tensor("sum", TensorRole::temporary, {"H", "N", "64"})
      .tensor("out", TensorRole::output, {"H", "N", "64"}, ElementType::f16)
      .statement("dot_init[h, i, j] : " + pair, "dot[h, i, j]", {}, number(0))
      .statement("dot[h, i, j, e] : " + pair + " and 0 <= e < 64", "dot[h, i, j]", {"q[h, i, e]", "k[h, j, e]"}, product,
                 ReductionOp::add)
      .statement("raw[h, i, j] : " + pair, "raw[h, i, j]", {"dot[h, i, j]"}, read(0) * number(0.125))
      .statement("forgotten_init[i, j] : " + seen, "forgotten[i, j]", {}, number(0))
      .statement("forgotten[i, j, l] : " + seen + " and j < l < i", "forgotten[i, j]", slices, term, ReductionOp::add)
      .statement("score[h, i, j] : " + pair, "score[h, i, j]", {"raw[h, i, j]", "forgotten[i, j]"}, read(0) - read(1))
      .statement("top_init[h, i] : " + row, "top[h, i]", {}, ScalarExpr::constant(-std::numeric_limits<double>::infinity()))
      .statement("top[h, i, j] : " + pair, "top[h, i]", {"score[h, i, j]"}, read(0), ReductionOp::max)
      .statement("power[h, i, j] : " + pair, "power[h, i, j]", {"score[h, i, j]", "top[h, i]"},
                 apply(ScalarOp::exp, read(0) - read(1)))
      .statement("total_init[h, i] : " + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j] : " + pair, "total[h, i]", {"power[h, i, j]"}, read(0), ReductionOp::add)
      .statement("sum_init[h, i, d] : " + row + " and 0 <= d < 64", "sum[h, i, d]", {}, number(0))
      .statement("sum[h, i, d, j] : " + pair + " and 0 <= d < 64", "sum[h, i, d]", {"power[h, i, j]", "v[h, j, d]"},
                 read(0) * wide, ReductionOp::add)
      .statement("out[h, i, d] : " + row + " and 0 <= d < 64", "out[h, i, d]", {"sum[h, i, d]", "total[h, i]"},
                 ScalarExpr::cast(ElementType::f16, read(0) / read(1)))
      .build();
}

/// A transposed convolution in space: what each corner of a cell is, from all channels of the cell, beside what it was. Rows lie along three
/// indices of x, columns along four of w, and results along one of each in turn.
inline Nest corners_of_cells() {
  const std::string cell = "0 <= r < R and 0 <= z < 5 and 0 <= c < 2 and 0 <= y < 6 and 0 <= d < 2 and 0 <= u < 8 and 0 <= e < 2",
                    at = "[r, z, c, y, d, u, e]";
  const std::vector<std::string> shape{"R", "5", "2", "6", "2", "8", "2"};
  return NestBuilder("corners_of_cells", {{"R", 3}, {"V", 7}})
      .tensor("x", TensorRole::input, {"V", "5", "6", "8"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"V", "R", "2", "2", "2"}, ElementType::f16)
      .tensor("bias", TensorRole::input, {"R"})
      .tensor("before", TensorRole::input, shape, ElementType::f16)
      .tensor("sums", TensorRole::temporary, shape)
      .tensor("out", TensorRole::output, shape, ElementType::f16)
      .statement("init" + at + " : " + cell, "sums" + at, {}, number(0))
      .statement("sum[r, z, c, y, d, u, e, v] : " + cell + " and 0 <= v < V", "sums" + at, {"x[v, z, y, u]", "w[v, r, c, d, e]"},
                 product_of_halves(), ReductionOp::add)
      .statement(
          "out" + at + " : " + cell, "out" + at, {"sums" + at, "bias[r]", "before" + at},
          ScalarExpr::cast(ElementType::f16, read(0) + read(1) + ScalarExpr::cast(ElementType::f32, read(2, ElementType::f16))))
      .build();
}

/// out[i, j] = sum over e < `experts` of gate[i, e] (sum over k of x[i, k] w[e, j, k]): experts, mixed. `from`: the first one that is.
inline Nest mixed_products(const std::string& experts = "3", const std::string& from = "0", ElementType type = ElementType::f16) {
  const std::string element = "0 <= i < M and 0 <= j < N", each = " and 0 <= e < " + experts;
  const bool known = experts.find_first_not_of("0123456789") == std::string::npos;
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"M", 5}, {"N", 4}, {"K", 3}};
  if (!known) sizes.emplace_back(experts, 3);
  return NestBuilder("mixed_products", sizes)
      .tensor("x", TensorRole::input, {"M", "K"}, type)
      .tensor("w", TensorRole::input, {experts, "N", "K"}, type)
      .tensor("gate", TensorRole::input, {"M", experts})
      .tensor("sums", TensorRole::temporary, {"M", experts, "N"})
      .tensor("mixed", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"}, type)
      .statement("init[i, e, j] : " + element + each, "sums[i, e, j]", {}, number(0))
      .statement("sum[i, e, j, k] : " + element + each + " and 0 <= k < K", "sums[i, e, j]", {"x[i, k]", "w[e, j, k]"},
                 product_of_halves(type), ReductionOp::add)
      .statement("mix_init[i, j] : " + element, "mixed[i, j]", {}, number(0))
      .statement("mix[i, j, e] : " + element + each + " and e >= " + from, "mixed[i, j]", {"sums[i, e, j]", "gate[i, e]"},
                 read(0) * read(1), ReductionOp::add)
      .statement("out[i, j] : " + element, "out[i, j]", {"mixed[i, j]"}, ScalarExpr::cast(type, read(0)))
      .build();
}

/// out = (x V + h U)(x V' + h U'): gates of a recurrent cell. `K` terms of x, `P` of h; `late`: h is computed, in a statement behind the
/// first products.
inline Nest recurrent_gates(bool late = false, double start = 0) {
  const std::string cell = "0 <= i < M and 0 <= j < N";
  NestBuilder builder("recurrent_gates", {{"M", 5}, {"N", 4}, {"K", 3}, {"P", 6}});
  builder.tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("hidden", TensorRole::input, {"M", "P"}, ElementType::f16);
  builder.tensor("v", TensorRole::input, {"2", "N", "K"}, ElementType::f16)
      .tensor("u", TensorRole::input, {"2", "N", "P"}, ElementType::f16);
  for (const char* sum : {"v0", "u0", "v1", "u1"}) builder.tensor(std::string("s") + sum, TensorRole::temporary, {"M", "N"});
  builder.tensor("out", TensorRole::output, {"M", "N"}, ElementType::f16);
  const std::string h = late ? "state" : "hidden";
  if (late) builder.tensor("state", TensorRole::temporary, {"M", "P"}, ElementType::f16);
  for (const std::string gate : {"0", "1"}) {
    const std::string x_sum = "sv" + gate, h_sum = "su" + gate;
    builder.statement(x_sum + "_init[i, j] : " + cell, x_sum + "[i, j]", {}, number(start))
        .statement(x_sum + "[i, j, k] : " + cell + " and 0 <= k < K", x_sum + "[i, j]", {"x[i, k]", "v[" + gate + ", j, k]"},
                   product_of_halves(), ReductionOp::add);
    if (late && gate == "0")
      builder.statement(
          "state[i, p] : 0 <= i < M and 0 <= p < P", "state[i, p]", {"hidden[i, p]"},
          ScalarExpr::cast(ElementType::f16, ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) * number(2)));
    builder.statement(h_sum + "_init[i, j] : " + cell, h_sum + "[i, j]", {}, number(start))
        .statement(h_sum + "[i, j, p] : " + cell + " and 0 <= p < P", h_sum + "[i, j]", {h + "[i, p]", "u[" + gate + ", j, p]"},
                   product_of_halves(), ReductionOp::add);
  }
  return builder
      .statement("out[i, j] : " + cell, "out[i, j]", {"sv0[i, j]", "su0[i, j]", "sv1[i, j]", "su1[i, j]"},
                 ScalarExpr::cast(ElementType::f16, (read(0) + read(1)) * (read(3) + read(2))))
      .build();
}

/// A convolution of stride 2 with a row of zeros around the image, as it comes from `select`: values and zeros in a temporary of f32, whose
/// last indices are places. `channels` terms for each of 3 x 3 taps; `side` x `side` places, or as many as sizes say.
inline Nest strided_convolution(int channels = 16, int filters = 8, int side = 0) {
  const std::string c = std::to_string(channels), m = std::to_string(filters);
  const std::string rows = side > 0 ? std::to_string(side) : "Y", columns = side > 0 ? std::to_string(side) : "Z";
  const std::string place = "0 <= n < B and 0 <= y < " + rows + " and 0 <= z < " + columns,
                    tap = "0 <= s < 3 and 0 <= t < 3 and 0 <= c < " + c;
  const std::string inside = " and 1 <= 2y + s <= 2*" + rows + " and 1 <= 2z + t <= 2*" + columns,
                    cell = place + " and 0 <= m < " + m;
  return NestBuilder("strided_convolution", {{"B", 2}, {"Y", 5}, {"Z", 4}})
      .tensor("x", TensorRole::input, {"B", "2*" + rows, "2*" + columns, c}, ElementType::f16)
      .tensor("w", TensorRole::input, {m, "3", "3", c}, ElementType::f16)
      .tensor("pixel", TensorRole::temporary, {"B", c, "3", "3", rows, columns})
      .tensor("sums", TensorRole::temporary, {"B", rows, columns, m})
      .tensor("out", TensorRole::output, {"B", rows, columns, m}, ElementType::f16)
      .statement("init[n, y, z, m] : " + cell, "sums[n, y, z, m]", {}, number(0))
      .statement("zero[n, c, s, t, y, z] : " + place + " and " + tap, "pixel[n, c, s, t, y, z]", {}, number(0))
      .statement("pixel[n, c, s, t, y, z] : " + place + " and " + tap + inside, "pixel[n, c, s, t, y, z]",
                 {"x[n, 2y + s - 1, 2z + t - 1, c]"}, ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)))
      .statement("sum[n, y, z, m, s, t, c] : " + cell + " and " + tap, "sums[n, y, z, m]",
                 {"pixel[n, c, s, t, y, z]", "w[m, s, t, c]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)), ReductionOp::add)
      .statement("out[n, y, z, m] : " + cell, "out[n, y, z, m]", {"sums[n, y, z, m]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * number(0.25)))
      .build();
}

/// Patches of an image of three colours, as vectors: products of 3 x `side` x `side` terms, in strides of `side`.
inline Nest patches(int side = 14, double start = 0) {
  const std::string k = std::to_string(side), place = "0 <= n < B and 0 <= y < Y and 0 <= z < Y and 0 <= o < N",
                    term = place + " and 0 <= c < 3 and 0 <= p < " + k + " and 0 <= q < " + k;
  return NestBuilder("patches", {{"B", 2}, {"Y", 3}, {"N", 8}})
      .tensor("x", TensorRole::input, {"B", "3", k + "Y", k + "Y"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"N", "3", k, k}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "Y", "Y", "N"})
      .tensor("out", TensorRole::output, {"B", "Y", "Y", "N"}, ElementType::f16)
      .statement("init[n, y, z, o] : " + place, "sums[n, y, z, o]", {}, number(start))
      .statement("sum[n, y, z, o, c, p, q] : " + term, "sums[n, y, z, o]",
                 {"x[n, c, " + k + "y + p, " + k + "z + q]", "w[o, c, p, q]"}, product_of_halves(), ReductionOp::add)
      .statement("out[n, y, z, o] : " + place, "out[n, y, z, o]", {"sums[n, y, z, o]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * number(0.25)))
      .build();
}

/// out[n, f, y, z] = sum over k, s and t of x[n, k, step y + s, step z + t] w[f, k, s, t]: a convolution of images with their channels first.
inline Nest channels_first(int step = 1) {
  const std::string d = std::to_string(step), side = d + "*Y + " + std::to_string(3 - step),
                    cell = "0 <= n < B and 0 <= f < F and 0 <= y < Y and 0 <= z < Y";
  return NestBuilder("channels_first", {{"B", 2}, {"C", 32}, {"F", 40}, {"Y", 9}})
      .tensor("x", TensorRole::input, {"B", "C", side, side}, ElementType::f16)
      .tensor("w", TensorRole::input, {"F", "C", "3", "3"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "F", "Y", "Y"})
      .tensor("out", TensorRole::output, {"B", "F", "Y", "Y"}, ElementType::f16)
      .statement("init[n, f, y, z] : " + cell, "sums[n, f, y, z]", {}, number(0))
      .statement("sum[n, f, y, z, k, s, t] : " + cell + " and 0 <= k < C and 0 <= s < 3 and 0 <= t < 3", "sums[n, f, y, z]",
                 {"x[n, k, " + d + "*y + s, " + d + "*z + t]", "w[f, k, s, t]"}, product_of_halves(), ReductionOp::add)
      .statement("out[n, f, y, z] : " + cell, "out[n, f, y, z]", {"sums[n, f, y, z]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * number(0.1)))
      .build();
}

/// out[n, y, c] = the maximum, or the sum, over s of x[n, y + s - 1, c], times w[s, c] if `weighted`, with its neutral element where x has no
/// place: values of the definition.
inline Nest padded_windows(ReductionOp op, bool weighted = false) {
  const std::string cell = "0 <= n < B and 0 <= y < Y and 0 <= c < C", taps = cell + " and 0 <= s < 3";
  const double neutral = neutral_element(op, ElementType::f32);
  NestBuilder builder("padded_windows", {{"B", 2}, {"Y", 9}, {"C", 7}});
  builder.tensor("x", TensorRole::input, {"B", "Y", "C"}, ElementType::f16)
      .tensor("padded", TensorRole::temporary, {"B", "Y", "C", "3"})
      .tensor("all", TensorRole::temporary, {"B", "Y", "C"})
      .tensor("out", TensorRole::output, {"B", "Y", "C"}, ElementType::f16)
      .statement("nothing[n, y, c, s] : " + taps, "padded[n, y, c, s]", {}, number(neutral))
      .statement("something[n, y, c, s] : " + taps + " and 0 <= y + s - 1 < Y", "padded[n, y, c, s]", {"x[n, y + s - 1, c]"},
                 ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)))
      .statement("init[n, y, c] : " + cell, "all[n, y, c]", {}, number(neutral));
  if (weighted) {
    builder.tensor("w", TensorRole::input, {"3", "C"})
        .statement("all[n, y, c, s] : " + taps, "all[n, y, c]", {"padded[n, y, c, s]", "w[s, c]"}, read(0) * read(1), op);
  } else {
    builder.statement("all[n, y, c, s] : " + taps, "all[n, y, c]", {"padded[n, y, c, s]"}, read(0), op);
  }
  return builder
      .statement("out[n, y, c] : " + cell, "out[n, y, c]", {"all[n, y, c]"}, ScalarExpr::cast(ElementType::f16, read(0)))
      .build();
}

/// out[n, y, f] = sum over s and k of x[n, y + s, k] w[f, s, k]: channels are last, and innermost.
inline Nest channels_last() {
  const std::string cell = "0 <= n < B and 0 <= y < Y and 0 <= f < F";
  return NestBuilder("channels_last", {{"B", 2}, {"C", 32}, {"F", 40}, {"Y", 9}})
      .tensor("x", TensorRole::input, {"B", "Y + 2", "C"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"F", "3", "C"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "Y", "F"})
      .tensor("out", TensorRole::output, {"B", "Y", "F"}, ElementType::f16)
      .statement("init[n, y, f] : " + cell, "sums[n, y, f]", {}, number(0))
      .statement("sum[n, y, f, s, k] : " + cell + " and 0 <= s < 3 and 0 <= k < C", "sums[n, y, f]",
                 {"x[n, y + s, k]", "w[f, s, k]"}, product_of_halves(), ReductionOp::add)
      .statement("out[n, y, f] : " + cell, "out[n, y, f]", {"sums[n, y, f]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * number(0.1)))
      .build();
}

/// out[b, i, j] = sum over k of x[b, i, k] w[k, j], with rows of `depth` and `columns` elements; w is a result's factor, too.
inline Nest product_of_rows(int depth = 12, int columns = 9) {
  const std::string k = std::to_string(depth), n = std::to_string(columns);
  const std::string cell = "0 <= b < B and 0 <= i < M and 0 <= j < " + n;
  return NestBuilder("product_of_rows", {{"B", 2}, {"M", 5}})
      .tensor("x", TensorRole::input, {"B", "M", k}, ElementType::f16)
      .tensor("w", TensorRole::input, {k, n}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "M", n})
      .tensor("out", TensorRole::output, {"B", "M", n}, ElementType::f16)
      .statement("init[b, i, j] : " + cell, "sums[b, i, j]", {}, number(0))
      .statement("sum[b, i, j, k] : " + cell + " and 0 <= k < " + k, "sums[b, i, j]", {"x[b, i, k]", "w[k, j]"},
                 product_of_halves(), ReductionOp::add)
      .statement("out[b, i, j] : " + cell, "out[b, i, j]", {"sums[b, i, j]", "w[0, j]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16))))
      .build();
}

/// Scores that all heads share, times a factor of each head, under a mask; their products with values of each head, which lie between rows
/// and columns. `returned`: the scores are a result as well.
inline Nest shared_scores(bool returned = false, int depth = 4, int columns = 3) {
  const std::string n = std::to_string(depth), d = std::to_string(columns);
  const std::string pair = "0 <= b < B and 0 <= i < N and 0 <= j <= i", of_head = pair + " and 0 <= h < H",
                    element = "0 <= b < B and 0 <= i < N and 0 <= h < H and 0 <= d < " + d;
  NestBuilder builder("shared_scores", {{"B", 2}, {"H", 3}, {"N", 6}});
  builder.tensor("q", TensorRole::input, {"B", "N", n}, ElementType::f16)
      .tensor("k", TensorRole::input, {"B", "N", n}, ElementType::f16)
      .tensor("v", TensorRole::input, {"B", "N", "H", d}, ElementType::f16)
      .tensor("factor", TensorRole::input, {"B", "H", "N"})
      .tensor("dot", TensorRole::temporary, {"B", "N", "N"})
      .tensor("score", TensorRole::temporary, {"B", "N", "N"})
      .tensor("weight", TensorRole::temporary, {"B", "H", "N", "N"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"B", "N", "H", d})
      .tensor("out", TensorRole::output, {"B", "N", "H", d}, ElementType::f16)
      .statement("dot_init[b, i, j] : " + pair, "dot[b, i, j]", {}, number(0))
      .statement("dot[b, i, j, n] : " + pair + " and 0 <= n < " + n, "dot[b, i, j]", {"q[b, i, n]", "k[b, j, n]"},
                 product_of_halves(), ReductionOp::add)
      .statement("score[b, i, j] : " + pair, "score[b, i, j]", {"dot[b, i, j]"}, read(0) * number(0.5))
      .statement("weight[b, h, i, j] : " + of_head, "weight[b, h, i, j]", {"score[b, i, j]", "factor[b, h, j]"},
                 ScalarExpr::cast(ElementType::f16, read(0) * read(1)))
      .statement("sums_init[b, i, h, d] : " + element, "sums[b, i, h, d]", {}, number(0))
      .statement("sums[b, i, h, d, j] : " + element + " and 0 <= j <= i", "sums[b, i, h, d]",
                 {"weight[b, h, i, j]", "v[b, j, h, d]"}, product_of_halves(), ReductionOp::add)
      .statement("out[b, i, h, d] : " + element, "out[b, i, h, d]", {"sums[b, i, h, d]"},
                 ScalarExpr::cast(ElementType::f16, read(0)));
  if (returned) {
    builder.tensor("scores", TensorRole::output, {"B", "N", "N"})
        .statement("scores[b, i, j] : " + pair, "scores[b, i, j]", {"score[b, i, j]"}, read(0));
  }
  return builder.build();
}

/// Weights of a softmax over a product of two matrices of f16, as a result. `named`: the weights have a tensor of their own, which their sum
/// reads, too.
inline Nest returned_weights(bool named = false, int depth = 4) {
  const std::string n = std::to_string(depth), row = "0 <= i < M", pair = row + " and 0 <= j < N";
  const ScalarExpr power = ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)});
  NestBuilder builder("returned_weights", {{"M", 5}, {"N", 6}});
  builder.tensor("a", TensorRole::input, {"M", n}, ElementType::f16)
      .tensor("b", TensorRole::input, {"N", n}, ElementType::f16)
      .tensor("dot", TensorRole::temporary, {"M", "N"})
      .tensor("score", TensorRole::temporary, {"M", "N"})
      .tensor("top", TensorRole::temporary, {"M"})
      .tensor("total", TensorRole::temporary, {"M"})
      .tensor("out", TensorRole::output, {"M", "N"}, ElementType::f16)
      .statement("dot_init[i, j] : " + pair, "dot[i, j]", {}, number(0))
      .statement("dot[i, j, n] : " + pair + " and 0 <= n < " + n, "dot[i, j]", {"a[i, n]", "b[j, n]"}, product_of_halves(),
                 ReductionOp::add)
      .statement("score[i, j] : " + pair, "score[i, j]", {"dot[i, j]"}, read(0) * number(0.5))
      .statement("top_init[i] : " + row, "top[i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[i, j] : " + pair, "top[i]", {"score[i, j]"}, read(0), ReductionOp::max);
  if (named) {
    builder.tensor("power", TensorRole::temporary, {"M", "N"})
        .statement("power[i, j] : " + pair, "power[i, j]", {"score[i, j]", "top[i]"}, power);
  }
  builder.statement("total_init[i] : " + row, "total[i]", {}, number(0));
  if (named) {
    builder.statement("total[i, j] : " + pair, "total[i]", {"power[i, j]"}, read(0), ReductionOp::add)
        .statement("out[i, j] : " + pair, "out[i, j]", {"power[i, j]", "total[i]"},
                   ScalarExpr::cast(ElementType::f16, ScalarExpr::make(ScalarOp::div, {read(0), read(1)})));
  } else {
    builder.statement("total[i, j] : " + pair, "total[i]", {"score[i, j]", "top[i]"}, power, ReductionOp::add)
        .statement("out[i, j] : " + pair, "out[i, j]", {"score[i, j]", "top[i]", "total[i]"},
                   ScalarExpr::cast(ElementType::f16, ScalarExpr::make(ScalarOp::div, {power, read(2)})));
  }
  return builder.build();
}

}  // namespace nestor::samples
