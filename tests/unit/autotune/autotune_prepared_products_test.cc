// Nests whose products of matrices need something computed before them: statistics of rows, normalised operands, another product. The
// first guess has tensor plans for all products and block plans for the rest, and its kernels compute what the nest defines.
#include "autotune/space/gpu/known_sizes.h"
#include "autotune/space/gpu/tensor_fusion.h"
#include "autotune/space/nest/nest_candidate.h"
#include "autotune/space/nest/nest_space.h"
#include "autotune/space/structure/axes.h"
#include "autotune/space/structure/preparation.h"
#include "autotune/trial/trial_steps.h"
#include "codegen/gpu/backend.h"
#include "codegen/gpu/kernel_plans.h"
#include "codegen/gpu/mma/plan/plan_passes.h"
#include "codegen/gpu/mma/proof/tensor_check.h"
#include "support/error.h"
#include "support/nests/half_values.h"
#include "support/nests/operand_nests.h"
#include "support/nests/tensor_nests.h"
#include "support/simt/simt_image.h"
#include "support/tensor/product_chain.h"
#include "support/tensor/product_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kUnits = 132, kDepth = 64;

ScalarExpr inverse_root_of_mean(const ScalarExpr& squares, int count) {
  return apply(ScalarOp::rsqrt, squares * number(1.0 / count) + number(1e-3));
}

/// Attention whose keys are divided by their root mean square: in 16 bits before the product, or by a factor of each score behind it.
Nest normalised_keys(bool stored) {
  NestBuilder before("normalised_keys", {{"H", 2}, {"Q", 200}, {"K", 200}});
  const std::string row = "0 <= h < H and 0 <= j < K", point = row + fmt::format(" and 0 <= e < {}", kDepth);
  before.tensor("squares", TensorRole::temporary, {"H", "K"})
      .tensor("inverse", TensorRole::temporary, {"H", "K"})
      .statement("squares_init[h, j] : " + row, "squares[h, j]", {}, number(0))
      .statement("squares[h, j, e] : " + point, "squares[h, j]", {"k[h, j, e]"}, wide(0) * wide(0), ReductionOp::add)
      .statement("inverse[h, j] : " + row, "inverse[h, j]", {"squares[h, j]"}, inverse_root_of_mean(read(0), kDepth));
  if (stored) {
    before.tensor("kn", TensorRole::temporary, {"H", "K", std::to_string(kDepth)}, kHalf)
        .statement("kn[h, j, e] : " + point, "kn[h, j, e]", {"k[h, j, e]", "inverse[h, j]"},
                   ScalarExpr::cast(kHalf, wide(0) * read(1)));
  }
  const Nest first = before.build();
  Nest nest = testing::attention_nest({.depth = kDepth});
  nest.op = first.op;
  nest.tensors.insert(nest.tensors.end(), first.tensors.begin(), first.tensors.end());
  for (Statement& statement : nest.statements) {
    if (stored && statement.name == "dot") statement.reads[1] = {"kn", statement.reads[1].relation.set_range_tuple("kn")};
    if (stored || statement.name != "score") continue;
    statement.value = statement.value * read(static_cast<int>(statement.reads.size()));
    statement.reads.push_back({"inverse", parse_map("[H, Q, K] -> { score[h, i, j] -> inverse[h, j] }", "test")});
  }
  nest.statements.insert(nest.statements.begin(), first.statements.begin(), first.statements.end());
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  validate(nest);
  return nest;
}

/// Attention whose keys are k times a matrix.
Nest projected_keys() {
  const std::string deep = std::to_string(kDepth), key = "0 <= h < H and 0 <= j < K and 0 <= e < " + deep;
  const Nest first = NestBuilder("projected_keys", {{"H", 2}, {"Q", 200}, {"K", 200}})
                         .tensor("w", TensorRole::input, {deep, deep}, kHalf)
                         .tensor("sums", TensorRole::temporary, {"H", "K", deep})
                         .tensor("kp", TensorRole::temporary, {"H", "K", deep}, kHalf)
                         .statement("sums_init[h, j, e] : " + key, "sums[h, j, e]", {}, number(0))
                         .statement("sums[h, j, e, c] : " + key + " and 0 <= c < " + deep, "sums[h, j, e]",
                                    {"k[h, j, c]", "w[e, c]"}, wide(0) * wide(1), ReductionOp::add)
                         .statement("kp[h, j, e] : " + key, "kp[h, j, e]", {"sums[h, j, e]"}, ScalarExpr::cast(kHalf, read(0)))
                         .build();
  Nest nest = testing::attention_nest({.depth = kDepth});
  nest.op = first.op;
  nest.tensors.insert(nest.tensors.end(), first.tensors.begin(), first.tensors.end());
  for (Statement& statement : nest.statements) {
    if (statement.name == "dot") statement.reads[1] = {"kp", statement.reads[1].relation.set_range_tuple("kp")};
  }
  nest.statements.insert(nest.statements.begin(), first.statements.begin(), first.statements.end());
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  validate(nest);
  return nest;
}

/// Rows of x, divided by their root mean square, times w.
Nest norm_then_product(int depth = kDepth) {
  const std::string deep = std::to_string(depth), row = "0 <= i < M", point = row + " and 0 <= k < " + deep,
                    cell = row + " and 0 <= j < N";
  return NestBuilder("norm_product", {{"M", 200}, {"N", 200}})
      .tensor("x", TensorRole::input, {"M", deep}, kHalf)
      .tensor("w", TensorRole::input, {"N", deep}, kHalf)
      .tensor("squares", TensorRole::temporary, {"M"})
      .tensor("inverse", TensorRole::temporary, {"M"})
      .tensor("xn", TensorRole::temporary, {"M", deep}, kHalf)
      .tensor("sum", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"}, kHalf)
      .statement("squares_init[i] : " + row, "squares[i]", {}, number(0))
      .statement("squares[i, k] : " + point, "squares[i]", {"x[i, k]"}, wide(0) * wide(0), ReductionOp::add)
      .statement("inverse[i] : " + row, "inverse[i]", {"squares[i]"}, inverse_root_of_mean(read(0), depth))
      .statement("xn[i, k] : " + point, "xn[i, k]", {"x[i, k]", "inverse[i]"}, ScalarExpr::cast(kHalf, wide(0) * read(1)))
      .statement("sum_init[i, j] : " + cell, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + cell + " and 0 <= k < " + deep, "sum[i, j]", {"xn[i, k]", "w[j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("out[i, j] : " + cell, "out[i, j]", {"sum[i, j]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

/// A product of operands that are made of words, a byte each: both are computed along the terms, and share nothing else.
Nest product_of_bytes() {
  const std::string cell = "0 <= i < M and 0 <= j < N", left = "0 <= i < M and 0 <= k < K", right = "0 <= j < N and 0 <= k < K";
  const ScalarExpr byte = ScalarExpr::cast(
      kHalf,
      ScalarExpr::cast(ElementType::f32, ScalarExpr::make(ScalarOp::bit_and, {ScalarExpr::read(0, ElementType::i32),
                                                                              ScalarExpr::constant(15, ElementType::i32)})));
  return NestBuilder("bytes_product", {{"M", 200}, {"N", 200}, {"K", 200}})
      .tensor("x", TensorRole::input, {"M", "K"}, ElementType::i32)
      .tensor("w", TensorRole::input, {"N", "K"}, ElementType::i32)
      .tensor("left", TensorRole::temporary, {"M", "K"}, kHalf)
      .tensor("right", TensorRole::temporary, {"N", "K"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"}, kHalf)
      .statement("left[i, k] : " + left, "left[i, k]", {"x[i, k]"}, byte)
      .statement("right[j, k] : " + right, "right[j, k]", {"w[j, k]"}, byte)
      .statement("sum_init[i, j] : " + cell, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, k] : " + cell + " and 0 <= k < K", "sum[i, j]", {"left[i, k]", "right[j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("out[i, j] : " + cell, "out[i, j]", {"sum[i, j]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

/// Three products of x, as queries, keys and values are.
Nest products_of_one_tensor() {
  NestBuilder builder("projections", {{"M", 200}, {"N", 200}, {"K", 200}});
  const std::string cell = "0 <= i < M and 0 <= j < N";
  builder.tensor("x", TensorRole::input, {"M", "K"}, kHalf);
  for (const char* k : {"0", "1", "2"}) {
    builder.tensor(std::string("w") + k, TensorRole::input, {"N", "K"}, kHalf)
        .tensor(std::string("s") + k, TensorRole::temporary, {"M", "N"})
        .tensor(std::string("y") + k, TensorRole::output, {"M", "N"}, kHalf);
  }
  for (const std::string k : {"0", "1", "2"}) {
    builder.statement("s" + k + "_init[i, j] : " + cell, "s" + k + "[i, j]", {}, number(0))
        .statement("s" + k + "[i, j, k] : " + cell + " and 0 <= k < K", "s" + k + "[i, j]", {"x[i, k]", "w" + k + "[j, k]"},
                   wide(0) * wide(1), ReductionOp::add);
  }
  for (const std::string k : {"0", "1", "2"})
    builder.statement("y" + k + "[i, j] : " + cell, "y" + k + "[i, j]", {"s" + k + "[i, j]"}, ScalarExpr::cast(kHalf, read(0)));
  return builder.build();
}

/// Keys and values are summed first; queries are multiplied by that, and divided by what they are worth to the keys' sum.
Nest linear_attention() {
  const std::string depth = std::to_string(kDepth), row = "0 <= h < H and 0 <= i < N", pair = "0 <= h < H and 0 <= p < " + depth,
                    cell = pair + " and 0 <= o < " + depth, out = row + " and 0 <= o < " + depth;
  const ScalarExpr feature = ScalarExpr::cast(kHalf, wide(0) * wide(0) + number(0.5));
  NestBuilder builder("linear_attention", {{"H", 2}, {"N", 70}});
  for (const char* name : {"q", "k", "v"}) builder.tensor(name, TensorRole::input, {"H", "N", depth}, kHalf);
  for (const char* name : {"kf", "qf"}) builder.tensor(name, TensorRole::temporary, {"H", "N", depth}, kHalf);
  return builder.tensor("sums", TensorRole::temporary, {"H", depth, depth})
      .tensor("summed", TensorRole::temporary, {"H", depth, depth}, kHalf)
      .tensor("count", TensorRole::temporary, {"H", depth})
      .tensor("size", TensorRole::temporary, {"H", "N"})
      .tensor("product", TensorRole::temporary, {"H", "N", depth})
      .tensor("out", TensorRole::output, {"H", "N", depth}, kHalf)
      .statement("kf[h, i, p] : " + row + " and 0 <= p < " + depth, "kf[h, i, p]", {"k[h, i, p]"}, feature)
      .statement("sums_init[h, p, o] : " + cell, "sums[h, p, o]", {}, number(0))
      .statement("sums[h, p, o, i] : " + cell + " and 0 <= i < N", "sums[h, p, o]", {"kf[h, i, p]", "v[h, i, o]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("summed[h, p, o] : " + cell, "summed[h, p, o]", {"sums[h, p, o]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.05)))
      .statement("count_init[h, p] : " + pair, "count[h, p]", {}, number(0))
      .statement("count[h, p, i] : " + pair + " and 0 <= i < N", "count[h, p]", {"kf[h, i, p]"}, wide(0), ReductionOp::add)
      .statement("qf[h, i, p] : " + row + " and 0 <= p < " + depth, "qf[h, i, p]", {"q[h, i, p]"}, feature)
      .statement("size_init[h, i] : " + row, "size[h, i]", {}, number(0))
      .statement("size[h, i, p] : " + row + " and 0 <= p < " + depth, "size[h, i]", {"qf[h, i, p]", "count[h, p]"},
                 wide(0) * read(1), ReductionOp::add)
      .statement("product_init[h, i, o] : " + out, "product[h, i, o]", {}, number(0))
      .statement("product[h, i, o, p] : " + out + " and 0 <= p < " + depth, "product[h, i, o]",
                 {"qf[h, i, p]", "summed[h, p, o]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("out[h, i, o] : " + out, "out[h, i, o]", {"product[h, i, o]", "size[h, i]"},
                 ScalarExpr::cast(kHalf, read(0) / read(1)))
      .build();
}

/// A layer along the places of each channel: what the first product leaves in registers is the second factor of the next.
Nest token_mixing() {
  const std::string cell = "0 <= n < B and 0 <= h < H and 0 <= m < C", out = "0 <= n < B and 0 <= p < 40 and 0 <= m < C";
  return NestBuilder("token_mixing", {{"B", 2}, {"C", 200}, {"H", 200}})
      .tensor("x", TensorRole::input, {"B", "40", "C"}, kHalf)
      .tensor("up", TensorRole::input, {"H", "40"}, kHalf)
      .tensor("down", TensorRole::input, {"40", "H"}, kHalf)
      .tensor("lifted", TensorRole::temporary, {"B", "H", "C"})
      .tensor("active", TensorRole::temporary, {"B", "H", "C"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "40", "C"})
      .tensor("out", TensorRole::output, {"B", "40", "C"}, kHalf)
      .statement("lifted_init[n, h, m] : " + cell, "lifted[n, h, m]", {}, number(0))
      .statement("lifted[n, h, m, p] : " + cell + " and 0 <= p < 40", "lifted[n, h, m]", {"up[h, p]", "x[n, p, m]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("active[n, h, m] : " + cell, "active[n, h, m]", {"lifted[n, h, m]"},
                 ScalarExpr::cast(kHalf, ScalarExpr::make(ScalarOp::max, {read(0), number(0)})))
      .statement("sum_init[n, p, m] : " + out, "sum[n, p, m]", {}, number(0))
      .statement("sum[n, p, m, h] : " + out + " and 0 <= h < H", "sum[n, p, m]", {"down[p, h]", "active[n, h, m]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[n, p, m] : " + out, "out[n, p, m]", {"sum[n, p, m]", "x[n, p, m]"},
                 ScalarExpr::cast(kHalf, read(0) * number(0.05) + wide(1)))
      .build();
}

/// Two gates of a cell, each of two products with sums over different dims: (x V + h U) (x V' + h U'); or x V - h U in place of each sum.
Nest gates(bool added = true) {
  NestBuilder builder("gates", {{"M", 200}, {"N", 200}, {"K", 200}, {"P", 200}});
  const std::string cell = "0 <= i < M and 0 <= j < N";
  builder.tensor("x", TensorRole::input, {"M", "K"}, kHalf).tensor("h", TensorRole::input, {"M", "P"}, kHalf);
  builder.tensor("v", TensorRole::input, {"2", "N", "K"}, kHalf).tensor("u", TensorRole::input, {"2", "N", "P"}, kHalf);
  for (const char* sum : {"v0", "v1", "u0", "u1"}) builder.tensor(std::string("s") + sum, TensorRole::temporary, {"M", "N"});
  builder.tensor("out", TensorRole::output, {"M", "N"}, kHalf);
  for (const std::string gate : {"0", "1"}) {
    for (const auto& [weight, input, dim, size] : {std::tuple("v", "x", "k", "K"), std::tuple("u", "h", "p", "P")}) {
      const std::string sum = std::string("s") + weight + gate, element = sum + "[i, j]";
      builder.statement(sum + "_init[i, j] : " + cell, element, {}, number(0))
          .statement(fmt::format("{}[i, j, {}] : {} and 0 <= {} < {}", sum, dim, cell, dim, size), element,
                     {fmt::format("{}[i, {}]", input, dim), fmt::format("{}[{}, j, {}]", weight, gate, dim)}, wide(0) * wide(1),
                     ReductionOp::add);
    }
  }
  const auto gate = [&](int first) { return added ? read(first) + read(first + 1) : read(first) - read(first + 1); };
  return builder
      .statement("out[i, j] : " + cell, "out[i, j]", {"sv0[i, j]", "su0[i, j]", "sv1[i, j]", "su1[i, j]"},
                 ScalarExpr::cast(kHalf, gate(0) * gate(2) * number(0.02)))
      .build();
}

/// Channels attend to channels: y[i, d] = sum over e of w[d, e] v[i, e], w = f16(s[d, e] / sum over e of |s|), s = sum over j of q[j, d] k[j, e].
Nest channels_attend() {
  const std::string cell = "0 <= b < B and 0 <= d < 64 and 0 <= e < 64", row = "0 <= b < B and 0 <= d < 64",
                    out = "0 <= b < B and 0 <= i < N and 0 <= d < 64";
  NestBuilder builder("channels_attend", {{"B", 2}, {"N", 200}});
  for (const char* name : {"q", "k", "v"}) builder.tensor(name, TensorRole::input, {"B", "N", "64"}, kHalf);
  return builder.tensor("s", TensorRole::temporary, {"B", "64", "64"})
      .tensor("size", TensorRole::temporary, {"B", "64"})
      .tensor("w", TensorRole::temporary, {"B", "64", "64"}, kHalf)
      .tensor("sum", TensorRole::temporary, {"B", "N", "64"})
      .tensor("y", TensorRole::output, {"B", "N", "64"}, kHalf)
      .statement("s_init[b, d, e] : " + cell, "s[b, d, e]", {}, number(0))
      .statement("s[b, d, e, j] : " + cell + " and 0 <= j < N", "s[b, d, e]", {"q[b, j, d]", "k[b, j, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("size_init[b, d] : " + row, "size[b, d]", {}, number(1))
      .statement("size[b, d, e] : " + cell, "size[b, d]", {"s[b, d, e]"}, apply(ScalarOp::abs, read(0)), ReductionOp::add)
      .statement("w[b, d, e] : " + cell, "w[b, d, e]", {"s[b, d, e]", "size[b, d]"}, ScalarExpr::cast(kHalf, read(0) / read(1)))
      .statement("sum_init[b, i, d] : " + out, "sum[b, i, d]", {}, number(0))
      .statement("sum[b, i, d, e] : " + out + " and 0 <= e < 64", "sum[b, i, d]", {"w[b, d, e]", "v[b, i, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("y[b, i, d] : " + out, "y[b, i, d]", {"sum[b, i, d]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

/// Attention of the same queries to the keys of each head: a learned query for every input.
Nest shared_queries() {
  Nest nest = testing::attention_nest({.depth = kDepth});
  nest.op = "shared_queries";
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "q") tensor.shape.erase(tensor.shape.begin());
  }
  for (Statement& statement : nest.statements) {
    if (statement.name == "dot") statement.reads[0].relation = parse_map("[H, Q, K] -> { dot[h, i, j, e] -> q[i, e] }", "test");
  }
  return nest;
}

/// Real and imaginary part of complex rows times a complex matrix: two products a term.
Nest complex_product() {
  NestBuilder builder("complex_product", {{"M", 200}, {"N", 200}, {"K", 200}});
  const std::string cell = "0 <= i < M and 0 <= j < N";
  for (const char* name : {"a", "b"}) builder.tensor(name, TensorRole::input, {"M", "K"}, kHalf);
  for (const char* name : {"c", "d"}) builder.tensor(name, TensorRole::input, {"N", "K"}, kHalf);
  for (const std::string part : {"re", "im"}) {
    builder.tensor("s" + part, TensorRole::temporary, {"M", "N"}).tensor(part, TensorRole::output, {"M", "N"}, kHalf);
  }
  for (const std::string part : {"re", "im"}) {
    const bool real = part == "re";
    builder.statement("s" + part + "_init[i, j] : " + cell, "s" + part + "[i, j]", {}, number(0))
        .statement("s" + part + "[i, j, k] : " + cell + " and 0 <= k < K", "s" + part + "[i, j]",
                   {"a[i, k]", real ? "c[j, k]" : "d[j, k]", "b[i, k]", real ? "d[j, k]" : "c[j, k]"},
                   real ? wide(0) * wide(1) - wide(2) * wide(3) : wide(0) * wide(1) + wide(2) * wide(3), ReductionOp::add)
        .statement(part + "[i, j] : " + cell, part + "[i, j]", {"s" + part + "[i, j]"}, ScalarExpr::cast(kHalf, read(0)));
  }
  return builder.build();
}

/// Rows times the weights of four experts, summed up with a factor for each expert: too few of them for the columns of a tile.
Nest mixed_experts() {
  const std::string cell = "0 <= i < M and 0 <= j < N", part = "0 <= i < M and 0 <= g < 4 and 0 <= j < N";
  return NestBuilder("mixed_experts", {{"M", 200}, {"N", 200}, {"K", 200}})
      .tensor("x", TensorRole::input, {"M", "K"}, kHalf)
      .tensor("w", TensorRole::input, {"4", "N", "K"}, kHalf)
      .tensor("gate", TensorRole::input, {"M", "4"})
      .tensor("s", TensorRole::temporary, {"M", "4", "N"})
      .tensor("sum", TensorRole::temporary, {"M", "N"})
      .tensor("y", TensorRole::output, {"M", "N"}, kHalf)
      .statement("s_init[i, g, j] : " + part, "s[i, g, j]", {}, number(0))
      .statement("s[i, g, j, k] : " + part + " and 0 <= k < K", "s[i, g, j]", {"x[i, k]", "w[g, j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("sum_init[i, j] : " + cell, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, g] : " + cell + " and 0 <= g < 4", "sum[i, j]", {"s[i, g, j]", "gate[i, g]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("y[i, j] : " + cell, "y[i, j]", {"sum[i, j]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

/// Each of four results is a sum of four products of parts of one input and parts of one weight: together too many sums for a tile.
Nest quaternion_product() {
  NestBuilder builder("quaternion_product", {{"M", 200}, {"N", 200}, {"K", 200}});
  const std::string cell = "0 <= i < M and 0 <= j < N";
  builder.tensor("x", TensorRole::input, {"M", "4", "K"}, kHalf).tensor("w", TensorRole::input, {"4", "N", "K"}, kHalf);
  for (int part = 0; part < 4; ++part) {
    std::vector<std::string> sums;
    ScalarExpr value = number(0);
    for (int term = 0; term < 4; ++term) {
      const std::string sum = fmt::format("s{}{}", part, term);
      builder.tensor(sum, TensorRole::temporary, {"M", "N"})
          .statement(sum + "_init[i, j] : " + cell, sum + "[i, j]", {}, number(0))
          .statement(sum + "[i, j, k] : " + cell + " and 0 <= k < K", sum + "[i, j]",
                     {fmt::format("x[i, {}, k]", term), fmt::format("w[{}, j, k]", part ^ term)}, wide(0) * wide(1),
                     ReductionOp::add);
      value = term == 0 ? read(0) : (term + part) % 2 == 0 ? value + read(term) : value - read(term);
      sums.push_back(sum + "[i, j]");
    }
    const std::string out = fmt::format("out{}", part);
    builder.tensor(out, TensorRole::output, {"M", "N"}, kHalf)
        .statement(out + "[i, j] : " + cell, out + "[i, j]", sums, ScalarExpr::cast(kHalf, value));
  }
  return builder.build();
}

/// The largest score of each row, and of each head: tiles of rows for the product, and blocks of heads for what comes then.
Nest largest_of_heads() {
  const std::string head = "0 <= h < H", row = head + " and 0 <= i < M", cell = row + " and 0 <= j < N";
  return NestBuilder("largest_of_heads", {{"H", 2}, {"M", 200}, {"N", 200}})
      .tensor("x", TensorRole::input, {"H", "M", "64"}, kHalf)
      .tensor("y", TensorRole::input, {"H", "N", "64"}, kHalf)
      .tensor("score", TensorRole::temporary, {"H", "M", "N"})
      .tensor("row", TensorRole::temporary, {"H", "M"})
      .tensor("top", TensorRole::output, {"H"})
      .statement("score_init[h, i, j] : " + cell, "score[h, i, j]", {}, number(0))
      .statement("score[h, i, j, k] : " + cell + " and 0 <= k < 64", "score[h, i, j]", {"x[h, i, k]", "y[h, j, k]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("row_init[h, i] : " + row, "row[h, i]", {}, number(-1e30))
      .statement("row[h, i, j] : " + cell, "row[h, i]", {"score[h, i, j]"}, read(0), ReductionOp::max)
      .statement("top_init[h] : " + head, "top[h]", {}, number(-1e30))
      .statement("top[h, i] : " + row, "top[h]", {"row[h, i]"}, read(0), ReductionOp::max)
      .build();
}

/// A filter of two taps as two sums; the first place has no term of the first tap, whose result is what its sum starts from.
Nest two_taps() {
  const std::string cell = "0 <= b < B and 0 <= t < T and 0 <= o < 64";
  return NestBuilder("two_taps", {{"B", 2}, {"T", 200}})
      .tensor("x", TensorRole::input, {"B", "T", "64"}, kHalf)
      .tensor("w", TensorRole::input, {"2", "64", "64"}, kHalf)
      .tensor("before", TensorRole::temporary, {"B", "T", "64"})
      .tensor("now", TensorRole::temporary, {"B", "T", "64"})
      .tensor("out", TensorRole::output, {"B", "T", "64"}, kHalf)
      .statement("before_init[b, t, o] : " + cell, "before[b, t, o]", {}, number(0))
      .statement("before[b, t, o, i] : " + cell + " and 1 <= t and 0 <= i < 64", "before[b, t, o]",
                 {"x[b, t - 1, i]", "w[0, o, i]"}, wide(0) * wide(1), ReductionOp::add)
      .statement("now_init[b, t, o] : " + cell, "now[b, t, o]", {}, number(0))
      .statement("now[b, t, o, i] : " + cell + " and 0 <= i < 64", "now[b, t, o]", {"x[b, t, i]", "w[1, o, i]"},
                 wide(0) * wide(1), ReductionOp::add)
      .statement("out[b, t, o] : " + cell, "out[b, t, o]", {"before[b, t, o]", "now[b, t, o]"},
                 ScalarExpr::cast(kHalf, read(0) + read(1)))
      .build();
}

struct PreparedCase {
  const char* name;
  Nest nest;
  Sizes sizes;   ///< that the guess is made for
  Sizes ragged;  ///< that its kernels run at
  int tensor;    ///< kernels on tensor cores
  int products;  ///< in them
  bool others;   ///< kernels without
  Fusion fusion;
  bool early = true;  ///< all kernels are placed early: none writes just a few elements of each row
};

std::vector<PreparedCase> prepared_cases() {
  const Sizes keys{{"H", 64}, {"Q", 4096}, {"K", 4096}}, few_keys{{"H", 2}, {"Q", 70}, {"K", 90}};
  const Sizes large{{"M", 4096}, {"N", 4096}, {"K", 4096}, {"P", 4096}};
  return {
      {"statistics", normalised_keys(false), keys, few_keys, 1, 2, true, Fusion::prepared},
      {"stored_operands", normalised_keys(true), keys, few_keys, 1, 2, true, Fusion::prepared},
      {"projected_keys", projected_keys(), keys, few_keys, 2, 3, false, Fusion::prepared},
      {"triangle", triangular_product(), {{"N", 2048}, {"D", 1024}}, {{"N", 72}, {"D", 88}}, 1, 1, true, Fusion::prepared},
      {"mixed_experts_but_one",
       mixed_products("4", "1"),
       {{"M", 4096}, {"N", 2048}, {"K", 2048}},
       {{"M", 200}, {"N", 72}, {"K", 200}},
       1,
       3,
       false,
       Fusion::maximal},
      {"computed_triangle",
       triangular_product(true),
       {{"N", 2048}, {"D", 1024}},
       {{"N", 72}, {"D", 88}},
       1,
       1,
       true,
       Fusion::prepared},
      {"norm_then_product",
       norm_then_product(),
       {{"M", 4096}, {"N", 4096}},
       {{"M", 70}, {"N", 88}},
       1,
       1,
       true,
       Fusion::prepared},
      {"norm_then_long_product",
       norm_then_product(520),
       {{"M", 4096}, {"N", 4096}},
       {{"M", 70}, {"N", 88}},
       1,
       1,
       true,
       Fusion::prepared},
      {"two_products",
       testing::product_chain_nest(),
       large,
       {{"M", 70}, {"N", 88}, {"K", 40}, {"P", 72}},
       2,
       2,
       false,
       Fusion::careful},
      // Narrow results of the first product take room beside its tiles.
      {"narrow_middle",
       testing::product_chain_nest(),
       {{"M", 65536}, {"N", 1024}, {"K", 1024}, {"P", 64}},
       {{"M", 70}, {"N", 88}, {"K", 40}, {"P", 72}},
       2,
       2,
       false,
       Fusion::careful},
      {"shared_queries",
       shared_queries(),
       {{"H", 64}, {"Q", 256}, {"K", 4096}},
       {{"H", 3}, {"Q", 70}, {"K", 88}},
       1,
       2,
       false,
       Fusion::maximal},
      // Weights in 16 bits by one kernel, their product by the next one.
      {"computed_weights", computed_weights(), {{"N", 2048}, {"D", 128}}, {{"N", 136}, {"D", 72}}, 1, 1, true, Fusion::prepared},
      {"mixed_experts",
       mixed_experts(),
       {{"M", 4096}, {"N", 2048}, {"K", 1024}},
       {{"M", 70}, {"N", 88}, {"K", 72}},
       1,
       4,
       false,
       Fusion::maximal},
      {"quaternion_product",
       quaternion_product(),
       {{"M", 4096}, {"N", 512}, {"K", 512}},
       {{"M", 70}, {"N", 88}, {"K", 72}},
       4,
       16,
       false,
       Fusion::connected},
      {"products_of_one_tensor",
       products_of_one_tensor(),
       {{"M", 4096}, {"N", 4096}, {"K", 4096}},
       {{"M", 70}, {"N", 88}, {"K", 72}},
       1,
       3,
       false,
       Fusion::careful},
      // Operands and results of products side by side: copies in a kernel each, and one that puts the results in their places.
      {"interleaved_products",
       interleaved_products(),
       {{"N", 384}, {"L", 128}},
       {{"N", 41}, {"L", 5}},
       1,
       1,
       true,
       Fusion::prepared},
      {"interleaved_products_of_8",
       interleaved_products(),
       {{"N", 384}, {"L", 128}},
       {{"N", 72}, {"L", 16}},
       1,
       1,
       true,
       Fusion::prepared},
      {"outer_products",
       outer_products("", 32, 32),
       {{"V", 512}, {"N", 384}},
       {{"V", 40}, {"N", 3}},
       1,
       1,
       true,
       Fusion::careful},
      // Zeros around the image and stride 2: tensor copies go in strides, and bring the zeros.
      {"strided_convolution",
       strided_convolution(64, 128),
       {{"B", 32}, {"Y", 56}, {"Z", 56}},
       {{"B", 2}, {"Y", 3}, {"Z", 9}},
       1,
       1,
       false,
       Fusion::maximal},
      // Runs of 14 terms: all terms of a patch side by side, with zeros at the end.
      {"patches", patches(), {{"B", 64}, {"Y", 16}, {"N", 1024}}, {{"B", 3}, {"Y", 2}, {"N", 72}}, 1, 1, true, Fusion::careful},
      {"shared_scores",
       shared_scores(false, 64, 64),
       {{"B", 256}, {"H", 16}, {"N", 256}},
       {{"B", 1}, {"H", 2}, {"N", 70}},
       1,
       2,
       false,
       Fusion::maximal},
      {"token_mixing",
       token_mixing(),
       {{"B", 64}, {"C", 768}, {"H", 384}},
       {{"B", 2}, {"C", 72}, {"H", 88}},
       1,
       2,
       false,
       Fusion::maximal},
      {"complex_product",
       complex_product(),
       {{"M", 4096}, {"N", 4096}, {"K", 4096}},
       {{"M", 70}, {"N", 88}, {"K", 72}},
       1,
       4,
       false,
       Fusion::careful},
      {"bytes",
       product_of_bytes(),
       {{"M", 2048}, {"N", 4096}, {"K", 2048}},
       {{"M", 70}, {"N", 88}, {"K", 40}},
       1,
       1,
       true,
       Fusion::careful},
      {"gates", gates(), large, {{"M", 70}, {"N", 88}, {"K", 37}, {"P", 30}}, 1, 2, true, Fusion::careful},
      {"gates_of_few_terms_left", gates(), large, {{"M", 130}, {"N", 72}, {"K", 1}, {"P", 1}}, 1, 2, true, Fusion::careful},
      // Copies of weights would cost more than the sums of few rows.
      {"gates_of_few_rows",
       gates(),
       {{"M", 16}, {"N", 4096}, {"K", 4096}, {"P", 4096}},
       {{"M", 7}, {"N", 88}, {"K", 40}, {"P", 72}},
       3,
       4,
       false,
       Fusion::alike},
      {"gates_of_differences", gates(false), large, {{"M", 70}, {"N", 88}, {"K", 40}, {"P", 72}}, 3, 4, false, Fusion::alike},
      {"channels_attend", channels_attend(), {{"B", 64}, {"N", 4096}}, {{"B", 2}, {"N", 70}}, 2, 2, true, Fusion::rows},
      // The product is computed twice: for the statistics of its rows, in parts, and for the weights that are stored.
      {"returned_weights",
       returned_weights(true, 64),
       {{"M", 2048}, {"N", 2048}},
       {{"M", 70}, {"N", 200}},
       2,
       2,
       true,
       Fusion::maximal,
       false},
      {"returned_weights_of_parts",
       returned_weights(false, 64),
       {{"M", 4096}, {"N", 4096}},
       {{"M", 130}, {"N", 2080}},
       2,
       2,
       true,
       Fusion::maximal,
       false},
      // Rows without terms multiply zeros from before the sequence.
      {"two_taps", two_taps(), {{"B", 8}, {"T", 4096}}, {{"B", 2}, {"T", 70}}, 1, 2, false, Fusion::careful},
      // Rows share tiles with the product, heads have a kernel of their own: scores stay on chip.
      {"largest_of_heads",
       largest_of_heads(),
       {{"H", 32}, {"M", 2048}, {"N", 2048}},
       {{"H", 2}, {"M", 70}, {"N", 200}},
       1,
       1,
       true,
       Fusion::products},
      {"sums_of_keys_and_values",
       linear_attention(),
       {{"H", 32}, {"N", 4096}},
       {{"H", 2}, {"N", 70}},
       2,
       2,
       true,
       Fusion::apart}};
}

class Prepared : public ::testing::TestWithParam<PreparedCase> {};
INSTANTIATE_TEST_SUITE_P(Nests, Prepared, ::testing::ValuesIn(prepared_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

struct FirstOf {
  FirstOf(const PreparedCase& test, const NvptxTarget& target)
      : sizes(complete_sizes(test.nest, test.sizes)),
        schedules(nest_for_tuning(test.nest, sizes)),
        space(make_nest_space(schedules, sizes, gpu_space_limits(target.sm, target.shared_limit, kUnits))),
        point(space->defaults().front()),
        candidate(space->candidate(point)) {}
  Sizes sizes;
  BaseSchedules schedules;
  std::unique_ptr<Space> space;
  Point point;
  Candidate candidate;
};

/// Five channels in steps of two places: terms of a place start 20 bytes behind those of the one before, where no copy by a tensor map may
/// start. Such a guess has no plan.
TEST(PreparedPieces, ThatAreNotAlignedHaveNoPlan) {
  FirstOf first({"", strided_convolution(5, 72), {{"B", 32}, {"Y", 56}, {"Z", 56}}, {}, 1, 1, true, Fusion::prepared, false}, {});
  ASSERT_EQ(first.candidate.infeasible, "");
  const TileProgram program = build_tile_program(first.schedules.replay(first.candidate.steps));
  EXPECT_THAT([&] { plan_kernels(program, {}); },
              ::testing::ThrowsMessage<UserError>(::testing::HasSubstr("start at no multiple of 16 bytes (10)")));
}

TEST_P(Prepared, TheFirstGuessHasAPlanForEachProductAndForTheRest) {
  const PreparedCase& test = GetParam();
  FirstOf first(test, {});
  ASSERT_EQ(first.candidate.infeasible, "");
  const std::int64_t fusion = value_or(named_values(*first.space, first.point), "fusion", -1);
  EXPECT_EQ(kFusions.at(static_cast<std::size_t>(fusion)), test.fusion);
  const auto plans = plan_kernels(build_tile_program(first.schedules.replay(first.candidate.steps)), {});  // proved
  int tensor = 0, products = 0, others = 0;
  for (const PlannedKernel& kernel : plans->kernels) {
    EXPECT_TRUE(!test.early || (kernel.kernel->waits && kernel.kernel->triggers)) << "kernels are placed early";
    if (!kernel.tensor) {
      ++others;
      EXPECT_FALSE(kernel.bodies.empty());
      continue;
    }
    ++tensor;
    for (const nvptx::TensorOp& op : kernel.tensor->ops) products += op.kind == nvptx::TensorOp::Kind::product ? 1 : 0;
  }
  EXPECT_EQ(tensor, test.tensor);
  EXPECT_EQ(products, test.products);
  EXPECT_EQ(others > 0, test.others) << others;
}

TEST_P(Prepared, TheFirstGuessIsRightAtRaggedSizes) {
  const PreparedCase& test = GetParam();
  FirstOf first(test, {});
  ASSERT_EQ(first.candidate.infeasible, "");
  const CompiledNvptx compiled = compile_nvptx(build_tile_program(first.schedules.replay(first.candidate.steps)), {});
  Sizes sizes = test.ragged;
  for (const auto& [name, value] : compiled.kernel.recipe.fixed_sizes) sizes.erase(name);
  EXPECT_EQ(testing::run_emulated(compiled, build_tile_program(first.schedules.base({})), sizes, {.tolerance = 4e-3}, {1}), "");
}

TEST(StridedCopies, TheProofHoldsStridesAndWhatMeetsTheZerosAroundAnImage) {
  FirstOf first({"", strided_convolution(64, 128), {{"B", 32}, {"Y", 56}, {"Z", 56}}, {}, 1, 1, false, Fusion::maximal}, {});
  const auto plans = plan_kernels(build_tile_program(first.schedules.replay(first.candidate.steps)), {});
  ASSERT_EQ(plans->kernels.size(), 1U);
  const nvptx::TensorPlan& plan = *plans->kernels.front().tensor;
  ASSERT_THAT(nvptx::check_tensor_plan(plan).violations, IsEmpty());
  const auto strided = std::find_if(plan.circular_buffers.begin(), plan.circular_buffers.end(),
                                    [](const nvptx::CircularBuffer& ring) { return ring.row_stride > 1; });
  ASSERT_NE(strided, plan.circular_buffers.end());
  EXPECT_EQ(strided->row_stride, 2);
  EXPECT_EQ(strided->pack_stride, strided->pack_index < 0 ? 1 : 2);
  const auto r = static_cast<std::size_t>(strided - plan.circular_buffers.begin());
  for (const int stride : {1, 3}) {
    nvptx::TensorPlan mutant = plan;
    mutant.circular_buffers[r].row_stride = stride;
    EXPECT_THAT(nvptx::check_tensor_plan(mutant).violations, Not(IsEmpty())) << "rows " << stride << " apart";
    mutant = plan;
    if (strided->pack_index < 0) continue;
    mutant.circular_buffers[r].pack_stride = stride;
    EXPECT_THAT(nvptx::check_tensor_plan(mutant).violations, Not(IsEmpty())) << "packs " << stride << " apart";
  }
  nvptx::TensorPlan unsaid = plan;
  for (nvptx::TensorOp& op : unsaid.ops) op.zeros_meet.clear();
  EXPECT_THAT(nvptx::check_tensor_plan(unsaid).violations, Not(IsEmpty())) << "weights that meet zeros need not be finite";
  const auto finite = nvptx::finite_operands(plan);
  ASSERT_FALSE(finite.empty());
  EXPECT_EQ(finite.front().tensor, "w");
}

TEST(StridedCopies, WhereRowsLieTooFarApartTermsAreCopied) {
  for (const int stride : {4, 5}) {
    const std::string s = std::to_string(stride), place = "0 <= z < Z", cell = place + " and 0 <= m < 128";
    const Nest nest = NestBuilder("far", {{"Z", 300}})
                          .tensor("x", TensorRole::input, {s + "*Z", "64"}, kHalf)
                          .tensor("w", TensorRole::input, {"128", "64"}, kHalf)
                          .tensor("sums", TensorRole::temporary, {"Z", "128"})
                          .tensor("out", TensorRole::output, {"Z", "128"}, kHalf)
                          .statement("init[z, m] : " + cell, "sums[z, m]", {}, number(0))
                          .statement("sum[z, m, c] : " + cell + " and 0 <= c < 64", "sums[z, m]",
                                     {"x[" + s + "*z, c]", "w[m, c]"}, wide(0) * wide(1), ReductionOp::add)
                          .statement("out[z, m] : " + cell, "out[z, m]", {"sums[z, m]"}, ScalarExpr::cast(kHalf, read(0)))
                          .build();
    FirstOf first({"", nest, {{"Z", 65536}}, {}, 1, 1, false, Fusion::maximal}, {});
    ASSERT_EQ(first.candidate.infeasible, "") << stride;
    const CompiledNvptx compiled = compile_nvptx(build_tile_program(first.schedules.replay(first.candidate.steps)), {});
    const bool strided = recipe_to_json(compiled.kernel.recipe).dump().find("strided_tensor_map") != std::string::npos;
    EXPECT_EQ(strided, stride == 4) << "64 rows of a tile reach over 256";
    EXPECT_EQ(
        testing::run_emulated(compiled, build_tile_program(first.schedules.base({})), {{"Z", 70}}, {.tolerance = 4e-3}, {1}), "");
  }
}

/// Names of statements that stand in kernels of their own before the products.
std::vector<std::string> prepared_statements(const Nest& nest, const Sizes& given) {
  const Sizes sizes = complete_sizes(nest, given);
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  RuleVariants variants(schedules, sizes);
  const RuleVariant& variant = variants.at({});
  std::vector<std::string> names;
  for (const int u : preparing_loop_groups(variants.nest(variant), variant.structure)) {
    const auto& statements = variant.structure.loop_groups[static_cast<std::size_t>(u)].statements;
    names.insert(names.end(), statements.begin(), statements.end());
  }
  return names;
}

/// The largest score of each row, of a product that nothing else reads.
Nest largest_scores(const std::string& depth) {
  const std::string row = "0 <= i < M", cell = row + " and 0 <= j < N";
  return NestBuilder("largest", {{"M", 200}, {"N", 200}, {"K", 64}})
      .tensor("x", TensorRole::input, {"M", depth}, kHalf)
      .tensor("y", TensorRole::input, {"N", depth}, kHalf)
      .tensor("score", TensorRole::temporary, {"M", "N"})
      .tensor("top", TensorRole::output, {"M"})
      .statement("score_init[i, j] : " + cell, "score[i, j]", {}, number(0))
      .statement("score[i, j, k] : " + cell + " and 0 <= k < " + depth, "score[i, j]", {"x[i, k]", "y[j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("top_init[i] : " + row, "top[i]", {}, number(-1e30))
      .statement("top[i, j] : " + cell, "top[i]", {"score[i, j]"}, read(0), ReductionOp::max)
      .build();
}

TEST(ProductSizes, AreTheShortDepthsOfProductsThatAreReduced) {
  const Sizes sizes{{"M", 4096}, {"N", 4096}, {"K", 256}};
  EXPECT_THAT(sizes_known_to_products(largest_scores("K"), sizes), ElementsAre("K"));
  EXPECT_THAT(sizes_known_to_products(largest_scores("64"), sizes), IsEmpty()) << "known already";
  EXPECT_THAT(sizes_known_to_products(largest_scores("K"), {{"M", 4096}, {"N", 4096}, {"K", 4096}}), IsEmpty()) << "no room";
  EXPECT_THAT(sizes_known_to_products(testing::product_chain_nest(), {{"M", 64}, {"N", 64}, {"K", 64}, {"P", 64}}), IsEmpty());
}

TEST(Preparation, IsWhatProductsNeedAndDoNotTakePartIn) {
  const Sizes keys{{"H", 64}, {"Q", 4096}, {"K", 4096}};
  EXPECT_THAT(prepared_statements(normalised_keys(false), keys), ElementsAre("squares_init", "squares", "inverse"));
  EXPECT_THAT(prepared_statements(normalised_keys(true), keys), ElementsAre("squares_init", "squares", "inverse", "kn"));
  EXPECT_THAT(prepared_statements(norm_then_product(), {{"M", 4096}, {"N", 4096}}),
              ElementsAre("squares_init", "squares", "inverse", "xn"));
  EXPECT_THAT(prepared_statements(testing::attention_nest(), keys), IsEmpty()) << "all of it takes part";
  EXPECT_THAT(prepared_statements(row_norm(), {}), IsEmpty()) << "no product";
}

TEST(Preparation, ItsGroupsStandFirst) {
  const PreparedCase test = prepared_cases()[1];
  const Sizes sizes = complete_sizes(test.nest, test.sizes);
  BaseSchedules schedules(nest_for_tuning(test.nest, sizes));
  RuleVariants variants(schedules, sizes);
  const RuleVariant& variant = variants.at({});
  const auto& groups = variants.fusion_groups(variant, Fusion::prepared);
  ASSERT_GE(groups.size(), 2U);
  bool before = true;
  for (const FusionGroup& group : groups) {
    EXPECT_TRUE(before || !group.prepares);
    before = group.prepares;
  }
  EXPECT_TRUE(groups.front().prepares);
  EXPECT_FALSE(variants.heaviest(variant, Fusion::prepared).prepares);
  for (const FusionGroup& group : variants.fusion_groups(variant, Fusion::maximal)) EXPECT_FALSE(group.prepares);
}

/// A kernel of both would have blocks along the terms, and go through the rows of either in strides.
TEST(Preparation, RowsOfTwoTensorsThatShareTheirColumnsAloneStayApart) {
  FirstOf first({"", product_of_bytes(), {{"M", 2048}, {"N", 4096}, {"K", 2048}}, {}, 1, 1, true, Fusion::careful}, {});
  ASSERT_EQ(first.candidate.infeasible, "");
  std::vector<std::string> blocks;
  for (const Step& step : first.candidate.steps) {
    if (step.name == "gpu_threads") blocks.push_back(step.args.at(0).get<std::string>());
  }
  EXPECT_THAT(blocks, ElementsAre("left.i", "right.j"));
}

/// Guesses with work tiles in turn fit and keep nothing in local memory; where blocks would have one work tile each there are none.
TEST(Products, ManyWorkTilesAreTakenInTurn) {
  const auto in_turn = [](std::int64_t size) {
    const Nest nest = testing::product_nest({});
    const Sizes sizes = complete_sizes(nest, {{"M", size}, {"N", size}, {"K", size}});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, kUnits));
    int found = 0;
    for (const Point& point : space->defaults()) {
      const Candidate candidate = space->candidate(point);
      const bool chosen = std::any_of(candidate.steps.begin(), candidate.steps.end(),
                                      [](const Step& step) { return step.name == "ping_pong_tiles"; });
      if (!chosen) continue;
      EXPECT_EQ(candidate.infeasible, "");
      const CompiledNvptx kernel = compile_nvptx(build_tile_program(schedules.replay(candidate.steps)), {});
      EXPECT_THAT(kernel.kernel.code, ::testing::Not(::testing::HasSubstr(".local")));
      ++found;
    }
    return found;
  };
  EXPECT_GE(in_turn(8192), 4);
  EXPECT_EQ(in_turn(1024), 0);
}

/// x[a, b, c, e, i, k] times w[j, k] for each of a, b, c (and e): operands of five or of six dims.
TEST(Products, TensorCopiesHaveFiveDims) {
  const auto on_tensor_cores = [](const std::string& more) {
    const std::string outer = more.empty() ? "a, b, c" : "a, b, c, " + more, cell = outer + ", i, j";
    std::string ranges = "0 <= a < M and 0 <= b < M and 0 <= c < M and 0 <= i < N and 0 <= j < N";
    std::vector<std::string> shape{"M", "M", "M"};
    if (!more.empty()) {
      ranges += " and 0 <= " + more + " < M";
      shape.emplace_back("M");
    }
    std::vector<std::string> rows = shape, cells = shape;
    rows.insert(rows.end(), {"N", "64"});
    cells.insert(cells.end(), {"N", "N"});
    const Nest nest = NestBuilder("many_dims", {{"M", 4}, {"N", 512}})
                          .tensor("x", TensorRole::input, rows, kHalf)
                          .tensor("w", TensorRole::input, {"N", "64"}, kHalf)
                          .tensor("sum", TensorRole::temporary, cells)
                          .tensor("out", TensorRole::output, cells, kHalf)
                          .statement("init[" + cell + "] : " + ranges, "sum[" + cell + "]", {}, number(0))
                          .statement("sum[" + cell + ", k] : " + ranges + " and 0 <= k < 64", "sum[" + cell + "]",
                                     {"x[" + outer + ", i, k]", "w[j, k]"}, wide(0) * wide(1), ReductionOp::add)
                          .statement("out[" + cell + "] : " + ranges, "out[" + cell + "]", {"sum[" + cell + "]"},
                                     ScalarExpr::cast(kHalf, read(0)))
                          .build();
    const Sizes sizes = complete_sizes(nest, {});
    BaseSchedules schedules(nest_for_tuning(nest, sizes));
    const auto space = make_nest_space(schedules, sizes, gpu_space_limits(90, NvptxTarget{}.shared_limit, kUnits));
    const Candidate candidate = space->candidate(space->defaults().front());
    return std::any_of(candidate.steps.begin(), candidate.steps.end(),
                       [](const Step& step) { return step.name == "tensor_cores"; });
  };
  EXPECT_TRUE(on_tensor_cores(""));
  EXPECT_FALSE(on_tensor_cores("e"));
}

TEST(Preparation, ProductsOfMatricesHaveRowsAndColumnsOfTheirOwn) {
  EXPECT_TRUE(multiplies_matrices(matmul().statement("C_update")));
  EXPECT_FALSE(multiplies_matrices(matmul().statement("C_init")));
  EXPECT_FALSE(multiplies_matrices(row_norm().statement("mean_update")));
  EXPECT_FALSE(multiplies_matrices(norm_then_product().statement("squares"))) << "a square";
  const Nest by_vector =
      NestBuilder("matvec", {{"M", 4}, {"K", 4}})
          .tensor("A", TensorRole::input, {"M", "K"})
          .tensor("x", TensorRole::input, {"K"})
          .tensor("y", TensorRole::output, {"M"})
          .statement("init[i] : 0 <= i < M", "y[i]", {}, number(0))
          .statement("sum[i, k] : 0 <= i < M and 0 <= k < K", "y[i]", {"A[i, k]", "x[k]"}, read(0) * read(1), ReductionOp::add)
          .build();
  EXPECT_FALSE(multiplies_matrices(by_vector.statement("sum")));
}

}  // namespace
}  // namespace nestor
