// Attentions one behind the other, whose rows of keys and totals lie as they like, and what a memory learns beside one: first guesses have a
// kernel on tensor cores for each attention, and none of the products on lanes.
#include "autotune/space/gpu/known_sizes.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/operand_nests.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

ScalarExpr half(int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::bf16)); }

bool is_stored(const TileProgram& program, const std::string& tensor) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [&](const Buffer& buffer) { return buffer.tensor == tensor && buffer.memory == Memory::workspace; });
}

std::ptrdiff_t tensor_kernels(const TileProgram& program) {
  const auto plans = plan_kernels(program, {.sm = 90});
  return std::count_if(plans->kernels.begin(), plans->kernels.end(),
                       [](const auto& kernel) { return kernel.tensor.has_value(); });
}

/// The statements of attention of rows over columns, `row` and `column` as "q" and "Q", from tensors of those names; weights are `name`. The total
/// lies as `total` says, and is divided in `result`.
struct Attention {
  std::string name, row, rows, column, columns, queries, keys, values, result;
  ElementType type = ElementType::f32;
  bool heads_last = false;
};

void add_attention(NestBuilder& nest, const Attention& a) {
  const auto of = [&](const std::string& text) { return a.name + text; };
  const std::string r = a.row, c = a.column, own = "0 <= h < H and 0 <= " + r + " < " + a.rows,
                    pair = own + " and 0 <= " + c + " < " + a.columns;
  const auto at = [](const std::string& tensor, const std::string& i, const std::string& j = "") {
    return tensor + "[h, " + i + (j.empty() ? "" : ", " + j) + "]";
  };
  const std::string total = a.heads_last ? "[" + r + ", h]" : "[h, " + r + "]";
  const ScalarExpr value = a.values == "v" ? half(1) : read(1);
  nest.tensor(of("dot"), TensorRole::temporary, {"H", a.rows, a.columns})
      .tensor(of("top"), TensorRole::temporary, {"H", a.rows})
      .tensor(of("power"), TensorRole::temporary, {"H", a.rows, a.columns})
      .tensor(of("total"), TensorRole::temporary,
              a.heads_last ? std::vector<std::string>{a.rows, "H"} : std::vector<std::string>{"H", a.rows})
      .tensor(of("sums"), TensorRole::temporary, {"H", a.rows, "64"})
      .statement(at(of("dot_init"), r, c) + " : " + pair, at(of("dot"), r, c), {}, number(0))
      .statement(of("dot[h, " + r + ", " + c + ", e]") + " : " + pair + " and 0 <= e < 64", at(of("dot"), r, c),
                 {at(a.queries, r, "e"), at(a.keys, c, "e")}, half(0) * half(1), ReductionOp::add)
      .statement(at(of("top_init"), r) + " : " + own, at(of("top"), r), {}, number(-infinity()))
      .statement(at(of("top"), r, c) + " : " + pair, at(of("top"), r), {at(of("dot"), r, c)}, read(0), ReductionOp::max)
      .statement(at(of("power"), r, c) + " : " + pair, at(of("power"), r, c), {at(of("dot"), r, c), at(of("top"), r)},
                 apply(ScalarOp::exp, read(0) - read(1)))
      .statement(at(of("sums_init"), r, "d") + " : " + own + " and 0 <= d < 64", at(of("sums"), r, "d"), {}, number(0))
      .statement(of("sums[h, " + r + ", d, " + c + "]") + " : " + pair + " and 0 <= d < 64", at(of("sums"), r, "d"),
                 {at(of("power"), r, c), at(a.values, c, "d")}, read(0) * value, ReductionOp::add)
      .statement((a.heads_last ? of("total_init[" + r + ", h]") : at(of("total_init"), r)) + " : " + own, of("total") + total, {},
                 number(0))
      .statement(of("total") + (a.heads_last ? "[" + r + ", h, " + c + "]" : "[h, " + r + ", " + c + "]") + " : " + pair,
                 of("total") + total, {at(of("power"), r, c)}, read(0), ReductionOp::add)
      .statement(at(a.result, r, "d") + " : " + own + " and 0 <= d < 64", at(a.result, r, "d"),
                 {at(of("sums"), r, "d"), of("total") + total},
                 a.type == ElementType::f32 ? read(0) / read(1) : ScalarExpr::cast(a.type, read(0) / read(1)));
}

TEST(AttentionStages, RowsOfOneMayBeKeysOfTheNext) {
  NestBuilder nest("two_attentions", {{"H", 2}, {"Q", 60}, {"S", 70}});
  for (const char* name : {"k", "v"}) nest.tensor(name, TensorRole::input, {"H", "S", "64"}, ElementType::bf16);
  nest.tensor("agents", TensorRole::input, {"H", "48", "64"}, ElementType::bf16)
      .tensor("q", TensorRole::input, {"H", "Q", "64"}, ElementType::bf16)
      .tensor("held", TensorRole::temporary, {"H", "48", "64"})
      .tensor("out", TensorRole::output, {"H", "Q", "64"}, ElementType::bf16);
  add_attention(nest, {"gather_", "a", "48", "s", "S", "agents", "k", "v", "held"});
  add_attention(nest, {"spread_", "i", "Q", "a", "48", "q", "agents", "held", "out", ElementType::bf16});
  SpaceGuesses guesses(nest.build(), {{"H", 64}, {"Q", 3000}, {"S", 3000}});
  const TileProgram program = guesses.program(0);
  EXPECT_EQ(tensor_kernels(program), 2);
  for (const char* tensor : {"gather_dot", "gather_power", "spread_dot", "spread_power"})
    EXPECT_FALSE(is_stored(program, tensor)) << tensor;
}

TEST(AttentionStages, TotalsMayLieAcrossHeads) {
  NestBuilder nest("heads_last", {{"H", 2}, {"Q", 60}, {"S", 70}});
  for (const char* name : {"k", "v"}) nest.tensor(name, TensorRole::input, {"H", "S", "64"}, ElementType::bf16);
  nest.tensor("q", TensorRole::input, {"H", "Q", "64"}, ElementType::bf16)
      .tensor("w", TensorRole::input, {"H", "64", "256"}, ElementType::bf16)
      .tensor("seen", TensorRole::temporary, {"H", "Q", "64"}, ElementType::bf16)
      .tensor("mixed", TensorRole::temporary, {"Q", "256"})
      .tensor("out", TensorRole::output, {"Q", "256"}, ElementType::bf16);
  add_attention(nest, {"", "i", "Q", "j", "S", "q", "k", "v", "seen", ElementType::bf16, true});
  nest.statement("mixed_init[i, o] : 0 <= i < Q and 0 <= o < 256", "mixed[i, o]", {}, number(0))
      .statement("mixed[i, o, h, d] : 0 <= i < Q and 0 <= o < 256 and 0 <= h < H and 0 <= d < 64", "mixed[i, o]",
                 {"seen[h, i, d]", "w[h, d, o]"}, half(0) * half(1), ReductionOp::add)
      .statement("out[i, o] : 0 <= i < Q and 0 <= o < 256", "out[i, o]", {"mixed[i, o]"},
                 ScalarExpr::cast(ElementType::bf16, read(0)));
  SpaceGuesses guesses(nest.build(), {{"H", 12}, {"Q", 4000}, {"S", 4000}});
  const TileProgram program = guesses.program(0);
  EXPECT_EQ(tensor_kernels(program), 2) << "attention, and what mixes its heads";
  for (const char* tensor : {"power", "total", "sums"}) EXPECT_FALSE(is_stored(program, tensor)) << tensor;
}

/// What is left of values beside what a memory knows, times keys.
TEST(AttentionStages, WhatAMemoryLearnsHasTensorCores) {
  const std::string row = "0 <= h < H and 0 <= i < Q and 0 <= d < 128", cell = "0 <= h < H and 0 <= e < 128 and 0 <= d < 128";
  const Nest nest =
      NestBuilder("learned", {{"H", 2}, {"Q", 60}})
          .tensor("key", TensorRole::input, {"H", "Q", "128"}, ElementType::bf16)
          .tensor("value", TensorRole::input, {"H", "Q", "128"}, ElementType::bf16)
          .tensor("memory", TensorRole::input, {"H", "128", "128"})
          .tensor("known", TensorRole::temporary, {"H", "Q", "128"})
          .tensor("sums", TensorRole::temporary, {"H", "128", "128"})
          .tensor("out", TensorRole::output, {"H", "128", "128"})
          .statement("known_init[h, i, d] : " + row, "known[h, i, d]", {}, number(0))
          .statement("known[h, i, d, e] : " + row + " and 0 <= e < 128", "known[h, i, d]", {"key[h, i, e]", "memory[h, e, d]"},
                     half(0) * read(1), ReductionOp::add)
          .statement("init[h, e, d] : " + cell, "sums[h, e, d]", {}, number(0))
          .statement("sum[h, e, d, i] : " + cell + " and 0 <= i < Q", "sums[h, e, d]",
                     {"key[h, i, e]", "value[h, i, d]", "known[h, i, d]"}, half(0) * (half(1) - read(2)), ReductionOp::add)
          .statement("out[h, e, d] : " + cell, "out[h, e, d]", {"sums[h, e, d]"}, read(0))
          .build();
  SpaceGuesses guesses(nest, {{"H", 32}, {"Q", 2048}});
  EXPECT_TRUE(guesses.has_rule(0, "materialize_factor"));
  EXPECT_EQ(tensor_kernels(guesses.program(0)), 2);
}

/// Weights of a triangle that a product sums up along rows have zeros beside it, which the kernel of the products stores in the other tiles.
TEST(AttentionStages, TilesThatAMaskLeavesOutTakeTheProductToo) {
  const std::string pair = "0 <= h < H and 0 <= g < 4 and 0 <= i < 1024 and 0 <= j <= i",
                    key = "0 <= h < H and 0 <= j < 1024 and 0 <= d < 64";
  const Nest nest =
      NestBuilder("gradients", {{"H", 2}})
          .tensor("q", TensorRole::input, {"H", "4", "1024", "64"}, ElementType::bf16)
          .tensor("k", TensorRole::input, {"H", "1024", "64"}, ElementType::bf16)
          .tensor("slope", TensorRole::input, {"H", "4", "1024", "64"}, ElementType::bf16)
          .tensor("spread", TensorRole::input, {"H", "4", "1024"})
          .tensor("dot", TensorRole::temporary, {"H", "4", "1024", "1024"})
          .tensor("share", TensorRole::temporary, {"H", "4", "1024", "1024"})
          .tensor("sums", TensorRole::temporary, {"H", "1024", "64"})
          .tensor("out", TensorRole::output, {"H", "1024", "64"}, ElementType::bf16)
          .statement("dot_init[h, g, i, j] : " + pair, "dot[h, g, i, j]", {}, number(0))
          .statement("dot[h, g, i, j, e] : " + pair + " and 0 <= e < 64", "dot[h, g, i, j]", {"q[h, g, i, e]", "k[h, j, e]"},
                     half(0) * half(1), ReductionOp::add)
          .statement("share[h, g, i, j] : " + pair, "share[h, g, i, j]", {"dot[h, g, i, j]", "spread[h, g, i]"},
                     apply(ScalarOp::exp, read(0) - read(1)))
          .statement("init[h, j, d] : " + key, "sums[h, j, d]", {}, number(0))
          .statement("sum[h, j, d, g, i] : " + key + " and 0 <= g < 4 and j <= i < 1024", "sums[h, j, d]",
                     {"share[h, g, i, j]", "slope[h, g, i, d]"}, read(0) * half(1), ReductionOp::add)
          .statement("out[h, j, d] : " + key, "out[h, j, d]", {"sums[h, j, d]"}, ScalarExpr::cast(ElementType::bf16, read(0)))
          .build();
  SpaceGuesses guesses(nest, {{"H", 16}});
  bool stored = false;
  for (std::size_t k = 0; k < guesses.points.size() && !stored; ++k) {
    if (!guesses.has_rule(k, "zero_terms") || !guesses.space->candidate(guesses.points[k]).infeasible.empty()) continue;
    stored = tensor_kernels(guesses.program(k)) == 2;
  }
  EXPECT_TRUE(stored) << "weights with zeros beside them, and the sums of these";
}

TEST(MaskedProducts, MatricesOfSeveralUsersHaveTensorCores) {
  SpaceGuesses guesses(adapted_products(ElementType::bf16, "16", "12"), {{"T", 2000}, {"O", 2560}});
  EXPECT_TRUE(guesses.has_rule(0, "masked_product"));
  EXPECT_EQ(tensor_kernels(guesses.program(0)), 1);
}

}  // namespace
}  // namespace nestor
