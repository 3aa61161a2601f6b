// Rows of scores, each a sum of products, and what is made of them: reductions along the scores' columns.
#pragma once

#include "support/nests/sample_nests.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace nestor::samples {

enum class Scored : std::uint8_t {
  weighted,     ///< out[i] = sum over j of s[i, j] y[i, j]
  largest,      ///< out[i] = the largest s[i, j]
  exponential,  ///< out[i] = the logarithm of the sum of all exp(s[i, j]), less the scores that y picks
  below,        ///< out[i] = the logarithm of the sum of exp(s[i, j]) over j <= i
  two_sums,     ///< out[i] = (the sum of s[i, j]) times (the sum of squares)
  apart,        ///< out[i] = sum over j of exp(2 s[i, j] - a[i] - b[j]), where a and b are the squares of rows of x and w
  down,         ///< out[j] = the largest s[i, j]: along columns
  norm,         ///< out[i, j] = p[i, j] over the root of the mean square of its row, where p is s in 16 bits
};

/// s[i, j] = sum over k of x[i, k] w[j, k], for k from 0 to `depth` and j from 0 to `width`.
inline Nest scored_rows(Scored kind, ElementType type = ElementType::f16, const std::string& depth = "K",
                        const std::string& width = "N") {
  const std::string row = "0 <= i < M", cell = row + " and 0 <= j < " + width;
  const auto wide = [&](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, type)); };
  NestBuilder builder("scored_rows", {{"M", 4096}, {"N", 4096}, {"K", 1024}});
  builder.tensor("x", TensorRole::input, {"M", depth}, type).tensor("w", TensorRole::input, {width, depth}, type);
  const bool reads_y = kind == Scored::weighted || kind == Scored::exponential;
  const auto squares = [&](const std::string& name, const std::string& dim, const std::string& extent, const std::string& of) {
    const std::string each = "0 <= " + dim + " < " + extent, element = name + "[" + dim + "]";
    builder.tensor(name, TensorRole::temporary, {extent})
        .statement(name + "_init[" + dim + "] : " + each, element, {}, number(0))
        .statement(name + "[" + dim + ", k] : " + each + " and 0 <= k < " + depth, element, {of + "[" + dim + ", k]"},
                   wide(0) * wide(0), ReductionOp::add);
  };
  if (kind == Scored::apart) {
    squares("a", "i", "M", "x");
    squares("b", "j", width, "w");
  }
  if (reads_y) builder.tensor("y", TensorRole::input, {"M", width}, type);
  builder.tensor("s", TensorRole::temporary, {"M", width})
      .statement("s_init[i, j] : " + cell, "s[i, j]", {}, number(0))
      .statement("s[i, j, k] : " + cell + " and 0 <= k < " + depth, "s[i, j]", {"x[i, k]", "w[j, k]"}, wide(0) * wide(1),
                 ReductionOp::add);
  const auto reduce = [&](const std::string& name, const ScalarExpr& term, const std::vector<std::string>& reads,
                          ReductionOp op = ReductionOp::add) {
    builder.tensor(name, TensorRole::temporary, {"M"})
        .statement(name + "_init[i] : " + row, name + "[i]", {},
                   number(op == ReductionOp::add ? 0 : -std::numeric_limits<double>::infinity()))
        .statement(name + "[i, j] : " + cell + (kind == Scored::below ? " and j <= i" : ""), name + "[i]", reads, term, op);
  };
  const auto result = [&](const ScalarExpr& value, const std::vector<std::string>& reads) {
    builder.tensor("out", TensorRole::output, {"M"}).statement("out[i] : " + row, "out[i]", reads, value);
  };
  switch (kind) {
    case Scored::weighted:
      reduce("sum", read(0) * wide(1), {"s[i, j]", "y[i, j]"});
      result(read(0), {"sum[i]"});
      break;
    case Scored::largest:
      reduce("top", read(0), {"s[i, j]"}, ReductionOp::max);
      result(read(0), {"top[i]"});
      break;
    case Scored::down: {
      const std::string column = "0 <= j < " + width;
      builder.tensor("top", TensorRole::temporary, {width})
          .tensor("out", TensorRole::output, {width})
          .statement("top_init[j] : " + column, "top[j]", {}, number(-std::numeric_limits<double>::infinity()))
          .statement("top[i, j] : " + cell, "top[j]", {"s[i, j]"}, read(0), ReductionOp::max)
          .statement("out[j] : " + column, "out[j]", {"top[j]"}, read(0));
      break;
    }
    case Scored::exponential:
      reduce("top", read(0), {"s[i, j]"}, ReductionOp::max);
      reduce("total", apply(ScalarOp::exp, read(0) - read(1)), {"s[i, j]", "top[i]"});
      reduce("chosen",
             ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::lt, {number(0.9), wide(1)}), read(0), number(0)}),
             {"s[i, j]", "y[i, j]"});
      result(read(0) + apply(ScalarOp::log, read(1)) - read(2), {"top[i]", "total[i]", "chosen[i]"});
      break;
    case Scored::below:
      reduce("top", read(0), {"s[i, j]"}, ReductionOp::max);
      reduce("total", apply(ScalarOp::exp, read(0) - read(1)), {"s[i, j]", "top[i]"});
      result(read(0) + apply(ScalarOp::log, read(1)), {"top[i]", "total[i]"});
      break;
    case Scored::two_sums:
      reduce("sum", read(0), {"s[i, j]"});
      reduce("squares", read(0) * read(0), {"s[i, j]"});
      result(read(0) * read(1), {"sum[i]", "squares[i]"});
      break;
    case Scored::apart:
      reduce("sum", apply(ScalarOp::exp, (number(2) * read(0) - read(1) - read(2)) * number(0.0625)),
             {"s[i, j]", "a[i]", "b[j]"});
      result(read(0), {"sum[i]"});
      break;
    case Scored::norm:
      builder.tensor("p", TensorRole::temporary, {"M", width}, type)
          .statement("p[i, j] : " + cell, "p[i, j]", {"s[i, j]"}, ScalarExpr::cast(type, read(0)));
      reduce("squares", wide(0) * wide(0), {"p[i, j]"});
      builder.tensor("out", TensorRole::output, {"M", width}, type)
          .statement("out[i, j] : " + cell, "out[i, j]", {"p[i, j]", "squares[i]"},
                     ScalarExpr::cast(type, wide(0) * apply(ScalarOp::rsqrt, read(1) * number(0.0009765625) + number(1e-6))));
  }
  return builder.build();
}

/// out[b, i] = sum over j of s[b, i, j] y[b, i, j]: a product for each b, with a matrix of its own.
inline Nest scored_batches(ElementType type = ElementType::f16) {
  const std::string row = "0 <= b < B and 0 <= i < M", cell = row + " and 0 <= j < N";
  const auto wide = [&](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, type)); };
  return NestBuilder("scored_batches", {{"B", 8}, {"M", 1024}, {"N", 1024}, {"K", 1024}})
      .tensor("x", TensorRole::input, {"B", "M", "K"}, type)
      .tensor("w", TensorRole::input, {"B", "N", "K"}, type)
      .tensor("y", TensorRole::input, {"B", "M", "N"}, type)
      .tensor("s", TensorRole::temporary, {"B", "M", "N"})
      .tensor("sum", TensorRole::temporary, {"B", "M"})
      .tensor("out", TensorRole::output, {"B", "M"})
      .statement("s_init[b, i, j] : " + cell, "s[b, i, j]", {}, number(0))
      .statement("s[b, i, j, k] : " + cell + " and 0 <= k < K", "s[b, i, j]", {"x[b, i, k]", "w[b, j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("sum_init[b, i] : " + row, "sum[b, i]", {}, number(0))
      .statement("sum[b, i, j] : " + cell, "sum[b, i]", {"s[b, i, j]", "y[b, i, j]"}, read(0) * wide(1), ReductionOp::add)
      .statement("out[b, i] : " + row, "out[b, i]", {"sum[b, i]"}, read(0))
      .build();
}

/// Logarithms of sums of exponentials of s[i, j] = 0.25 x[i, k] w[j, k], along rows and along columns. `named`: a statement of their own makes
/// the exponentials down a column.
inline Nest crossed_rows(bool named = false, std::int64_t rows = 5, std::int64_t columns = 6, std::int64_t depth = 4,
                         ElementType type = ElementType::f16) {
  const std::string cell = "0 <= i < M and 0 <= j < N";
  const auto wide = [&](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, type)); };
  NestBuilder builder("crossed_rows", {{"M", rows}, {"N", columns}, {"K", depth}});
  builder.tensor("x", TensorRole::input, {"M", "K"}, type)
      .tensor("w", TensorRole::input, {"N", "K"}, type)
      .tensor("dot", TensorRole::temporary, {"M", "N"})
      .tensor("s", TensorRole::temporary, {"M", "N"})
      .statement("dot_init[i, j] : " + cell, "dot[i, j]", {}, number(0))
      .statement("dot[i, j, k] : " + cell + " and 0 <= k < K", "dot[i, j]", {"x[i, k]", "w[j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("s[i, j] : " + cell, "s[i, j]", {"dot[i, j]"}, read(0) * number(0.25));
  const ScalarExpr power = apply(ScalarOp::exp, read(0) - read(1));
  const auto logarithm = [&](const std::string& dim, const std::string& top, const std::string& total, const std::string& out) {
    const std::string extent = dim == "i" ? "M" : "N", each = "0 <= " + dim + " < " + extent;
    const auto at = [&](const std::string& tensor) { return tensor + "[" + dim + "]"; };
    for (const std::string& name : {top, total}) builder.tensor(name, TensorRole::temporary, {extent});
    builder.statement(at(top + "_init") + " : " + each, at(top), {}, number(-std::numeric_limits<double>::infinity()))
        .statement(top + "[i, j] : " + cell, at(top), {"s[i, j]"}, read(0), ReductionOp::max)
        .statement(at(total + "_init") + " : " + each, at(total), {}, number(0));
    const bool apart = named && dim == "j";
    if (apart) {
      builder.tensor("power", TensorRole::temporary, {"M", "N"})
          .statement("power[i, j] : " + cell, "power[i, j]", {"s[i, j]", at(top)}, power);
    }
    builder
        .statement(total + "[i, j] : " + cell, at(total),
                   apart ? std::vector<std::string>{"power[i, j]"} : std::vector<std::string>{"s[i, j]", at(top)},
                   apart ? read(0) : power, ReductionOp::add)
        .tensor(out, TensorRole::output, {extent})
        .statement(at(out) + " : " + each, at(out), {at(top), at(total)}, read(0) + apply(ScalarOp::log, read(1)));
  };
  logarithm("i", "top", "total", "out");
  logarithm("j", "down", "sums", "across");
  return builder.build();
}

}  // namespace nestor::samples
