// Products of matrices of integers, which rule integer_product adds up in bf16.
#pragma once

#include "support/nests/sample_nests.h"

#include <limits>
#include <string>

namespace nestor::samples {

/// out[b, i, j] = s[b, i] f32(sum over k of x[b, i, k] y[b, j, k]) for integers x and y; `terms` of each sum, `part`: of results.
inline Nest integer_products(const std::string& terms = "64", const std::string& part = "") {
  const std::string element = "0 <= b < B and 0 <= i < N and 0 <= j < M" + part, pair = element + " and 0 <= k < " + terms;
  const auto whole = [](int ordinal) { return read(ordinal, ElementType::i32); };
  std::vector<std::pair<std::string, std::int64_t>> sizes{{"B", 2}, {"N", 512}, {"M", 512}};
  if (terms == "K") sizes.emplace_back("K", 64);
  return NestBuilder("integer_products", sizes)
      .tensor("x", TensorRole::input, {"B", "N", terms}, ElementType::i32)
      .tensor("y", TensorRole::input, {"B", "M", terms}, ElementType::i32)
      .tensor("s", TensorRole::input, {"B", "N"})
      .tensor("dot", TensorRole::temporary, {"B", "N", "M"}, ElementType::i32)
      .tensor("out", TensorRole::output, {"B", "N", "M"})
      .statement("dot_init[b, i, j] : " + element, "dot[b, i, j]", {}, ScalarExpr::constant(0, ElementType::i32))
      .statement("dot[b, i, j, k] : " + pair, "dot[b, i, j]", {"x[b, i, k]", "y[b, j, k]"},
                 ScalarExpr::make(ScalarOp::mul, {whole(0), whole(1)}), ReductionOp::add)
      .statement("out[b, i, j] : " + element, "out[b, i, j]", {"s[b, i]", "dot[b, i, j]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, whole(1)))
      .build();
}

/// Weights of four bits, eight in a word, with a scale for 64: out[i, j] = sum over u of scale[j, u] f32(sum over z of x[i, 64 u + z] w), where w is
/// the nibble of y[j, 8 u + floor(z / 8)] that z says, less 8. x is clamped to -`most` .. `most`; 0: as it is.
inline Nest packed_weights(int most) {
  const std::string element = "0 <= i < N and 0 <= j < M", group = element + " and 0 <= u < U";
  const auto whole = [](int number) { return ScalarExpr::constant(number, ElementType::i32); };
  const auto make = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  const ScalarExpr given = read(0, ElementType::i32), word = read(1, ElementType::i32);
  const ScalarExpr nibble = make(ScalarOp::bit_and, make(ScalarOp::shift_right_logical, word, ScalarExpr::index(0)), whole(15));
  const ScalarExpr x = most == 0 ? given : make(ScalarOp::max, make(ScalarOp::min, given, whole(most)), whole(-most));
  return NestBuilder("packed_weights", {{"N", 512}, {"M", 512}, {"U", 16}})
      .tensor("x", TensorRole::input, {"N", "64*U"}, ElementType::i32)
      .tensor("y", TensorRole::input, {"M", "8*U"}, ElementType::i32)
      .tensor("scale", TensorRole::input, {"M", "U"})
      .tensor("part", TensorRole::temporary, {"N", "M", "U"}, ElementType::i32)
      .tensor("sum", TensorRole::temporary, {"N", "M"})
      .tensor("out", TensorRole::output, {"N", "M"})
      .statement("part_init[i, j, u] : " + group, "part[i, j, u]", {}, whole(0))
      .statement("part[i, j, u, z] : " + group + " and 0 <= z < 64", "part[i, j, u]",
                 {"x[i, 64*u + z]", "y[j, 8*u + floor(z/8)]"}, make(ScalarOp::mul, x, make(ScalarOp::sub, nibble, whole(8))),
                 ReductionOp::add, {"4*(z - 8*floor(z/8))"})
      .statement("sum_init[i, j] : " + element, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, u] : " + group, "sum[i, j]", {"scale[j, u]", "part[i, j, u]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::i32)), ReductionOp::add)
      .statement("out[i, j] : " + element, "out[i, j]", {"sum[i, j]"}, read(0))
      .build();
}

/// Rows as integers of 8 bits by their largest magnitude, times bytes: step[i] = max over k of |x[i, k]| / 127, level[i, k] =
/// floor(x[i, k] / step[i] + 0.5), out[i, j] = step[i] f32(sum over k of level[i, k] ((y[j, k] & 255) - 128)). `floor`: that the maximum has.
inline Nest scaled_rows(const std::string& terms, ElementType type = ElementType::f16, double floor = 0) {
  const std::string row = "0 <= i < N", element = row + " and 0 <= k < " + terms, pair = row + " and 0 <= j < M";
  const auto whole = [](int number) { return ScalarExpr::constant(number, ElementType::i32); };
  const auto make = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  const ScalarExpr x = type == ElementType::f32 ? read(0) : ScalarExpr::cast(ElementType::f32, read(0, type));
  const ScalarExpr largest = floor > 0 ? make(ScalarOp::max, read(0), number(floor)) : read(0);
  const ScalarExpr byte = make(ScalarOp::sub, make(ScalarOp::bit_and, read(1, ElementType::i32), whole(255)), whole(128));
  return NestBuilder("scaled_rows", {{"N", 512}, {"M", 512}})
      .tensor("x", TensorRole::input, {"N", terms}, type)
      .tensor("y", TensorRole::input, {"M", terms}, ElementType::i32)
      .tensor("top", TensorRole::temporary, {"N"})
      .tensor("step", TensorRole::temporary, {"N"})
      .tensor("level", TensorRole::temporary, {"N", terms}, ElementType::i32)
      .tensor("total", TensorRole::temporary, {"N", "M"}, ElementType::i32)
      .tensor("out", TensorRole::output, {"N", "M"})
      .statement("top_init[i] : " + row, "top[i]", {}, number(0))
      .statement("top[i, k] : " + element, "top[i]", {"x[i, k]"}, ScalarExpr::make(ScalarOp::abs, {x}), ReductionOp::max)
      .statement("step[i] : " + row, "step[i]", {"top[i]"}, largest / number(127))
      .statement("level[i, k] : " + element, "level[i, k]", {"x[i, k]", "step[i]"},
                 ScalarExpr::cast(ElementType::i32, ScalarExpr::make(ScalarOp::floor, {x / read(1) + number(0.5)})))
      .statement("total_init[i, j] : " + pair, "total[i, j]", {}, whole(0))
      .statement("total[i, j, k] : " + pair + " and 0 <= k < " + terms, "total[i, j]", {"level[i, k]", "y[j, k]"},
                 make(ScalarOp::mul, read(0, ElementType::i32), byte), ReductionOp::add)
      .statement("out[i, j] : " + pair, "out[i, j]", {"step[i]", "total[i, j]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::i32)))
      .build();
}

/// Attention whose queries and keys are integers: softmax over j of s[b, i] f32(sum over k of x[b, i, k] y[b, j, k]), times v[b, j, e].
inline Nest integer_attention() {
  const std::string row = "0 <= b < B and 0 <= i < N", pair = row + " and 0 <= j < M", element = row + " and 0 <= e < 64";
  const auto whole = [](int ordinal) { return read(ordinal, ElementType::i32); };
  NestBuilder builder("integer_attention", {{"B", 2}, {"N", 512}, {"M", 512}});
  for (const char* name : {"x", "y"})
    builder.tensor(name, TensorRole::input, {"B", name == std::string("x") ? "N" : "M", "64"}, ElementType::i32);
  builder.tensor("v", TensorRole::input, {"B", "M", "64"}, ElementType::bf16).tensor("s", TensorRole::input, {"B", "N"});
  builder.tensor("dot", TensorRole::temporary, {"B", "N", "M"}, ElementType::i32);
  for (const char* name : {"score", "power"}) builder.tensor(name, TensorRole::temporary, {"B", "N", "M"});
  for (const char* name : {"top", "total"}) builder.tensor(name, TensorRole::temporary, {"B", "N"});
  return builder.tensor("sum", TensorRole::temporary, {"B", "N", "64"})
      .tensor("out", TensorRole::output, {"B", "N", "64"})
      .statement("dot_init[b, i, j] : " + pair, "dot[b, i, j]", {}, ScalarExpr::constant(0, ElementType::i32))
      .statement("dot[b, i, j, k] : " + pair + " and 0 <= k < 64", "dot[b, i, j]", {"x[b, i, k]", "y[b, j, k]"},
                 ScalarExpr::make(ScalarOp::mul, {whole(0), whole(1)}), ReductionOp::add)
      .statement("score[b, i, j] : " + pair, "score[b, i, j]", {"s[b, i]", "dot[b, i, j]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, whole(1)))
      .statement("top_init[b, i] : " + row, "top[b, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[b, i, j] : " + pair, "top[b, i]", {"score[b, i, j]"}, read(0), ReductionOp::max)
      .statement("power[b, i, j] : " + pair, "power[b, i, j]", {"score[b, i, j]", "top[b, i]"},
                 ScalarExpr::make(ScalarOp::exp, {read(0) - read(1)}))
      .statement("total_init[b, i] : " + row, "total[b, i]", {}, number(0))
      .statement("total[b, i, j] : " + pair, "total[b, i]", {"power[b, i, j]"}, read(0), ReductionOp::add)
      .statement("sum_init[b, i, e] : " + element, "sum[b, i, e]", {}, number(0))
      .statement("sum[b, i, e, j] : " + element + " and 0 <= j < M", "sum[b, i, e]", {"power[b, i, j]", "v[b, j, e]"},
                 read(0) * ScalarExpr::cast(ElementType::f32, read(1, ElementType::bf16)), ReductionOp::add)
      .statement("out[b, i, e] : " + element, "out[b, i, e]", {"sum[b, i, e]", "total[b, i]"}, read(0) / read(1))
      .build();
}

}  // namespace nestor::samples
