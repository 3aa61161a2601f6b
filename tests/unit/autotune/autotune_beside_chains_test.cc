// What stands beside or behind attention in one nest: products of f32 in kernels of their own, two results of one product, sums of what an
// earlier kernel makes, and pairs of elements across the diagonal. First guesses keep attention in one kernel on tensor cores.
#include "autotune/space/gpu/transposed_rows.h"
#include "autotune/space/structure/group_search.h"
#include "autotune/space/structure/nest_analysis.h"
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/nests/tensor_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;
using testing::SpaceGuesses;

NvptxTarget hopper() {
  NvptxTarget target;
  target.sm = 90;
  return target;
}

/// Is the tensor in memory between kernels?
bool is_stored(const TileProgram& program, const std::string& tensor) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [&](const Buffer& buffer) { return buffer.tensor == tensor && buffer.memory == Memory::workspace; });
}

std::ptrdiff_t tensor_kernels(const TileProgram& program) {
  const auto plans = plan_kernels(program, hopper());
  return std::count_if(plans->kernels.begin(), plans->kernels.end(),
                       [](const auto& kernel) { return kernel.tensor.has_value(); });
}

/// both = attention + a memory that rows of f32 recall, as in infini-attention.
Nest attention_and_memory() {
  Nest nest = testing::attention_nest({.result = ElementType::f32});
  const std::string row = "0 <= h < H and 0 <= i < Q and 0 <= d < 64";
  const Nest more =
      NestBuilder("attention_and_memory", {{"H", 2}, {"Q", 200}, {"K", 200}})
          .tensor("state", TensorRole::input, {"H", "Q", "64"})
          .tensor("memory", TensorRole::input, {"H", "64", "64"})
          .tensor("out", TensorRole::input, {"H", "Q", "64"})
          .tensor("recalled", TensorRole::temporary, {"H", "Q", "64"})
          .tensor("both", TensorRole::output, {"H", "Q", "64"})
          .statement("recalled_init[h, i, d] : " + row, "recalled[h, i, d]", {}, number(0))
          .statement("recalled[h, i, d, c] : " + row + " and 0 <= c < 64", "recalled[h, i, d]",
                     {"state[h, i, c]", "memory[h, c, d]"}, read(0) * read(1), ReductionOp::add)
          .statement("both[h, i, d] : " + row, "both[h, i, d]", {"out[h, i, d]", "recalled[h, i, d]"}, read(0) + read(1))
          .build();
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "out") tensor.role = TensorRole::temporary;
  }
  for (const Tensor& tensor : more.tensors) {
    if (tensor.name != "out") nest.tensors.push_back(tensor);
  }
  nest.op = more.op;
  nest.statements.insert(nest.statements.end(), more.statements.begin(), more.statements.end());
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  validate(nest);
  return nest;
}

TEST(BesideChains, ProductsOfF32LeaveAttentionOneKernel) {
  SpaceGuesses guesses(attention_and_memory(), {{"H", 32}, {"Q", 2048}, {"K", 2048}});
  const TileProgram program = guesses.program(0);
  for (const char* tensor : {"dot", "score", "power", "weighted"}) EXPECT_FALSE(is_stored(program, tensor)) << tensor;
  EXPECT_GE(tensor_kernels(program), 1);
}

/// Rows of two kinds attend to each other, and each kind has a result of its own.
Nest two_results() {
  const std::string row = "0 <= h < H and 0 <= i < P + W", seen = row + " and 0 <= j < K";
  const auto half = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::f16)); };
  return NestBuilder("two_results", {{"H", 2}, {"P", 150}, {"W", 50}, {"K", 200}})
      .tensor("q", TensorRole::input, {"H", "P + W", "64"}, ElementType::f16)
      .tensor("k", TensorRole::input, {"H", "K", "64"}, ElementType::f16)
      .tensor("v", TensorRole::input, {"H", "K", "64"}, ElementType::f16)
      .tensor("dot", TensorRole::temporary, {"H", "P + W", "K"})
      .tensor("largest", TensorRole::temporary, {"H", "P + W"})
      .tensor("power", TensorRole::temporary, {"H", "P + W", "K"})
      .tensor("weighted", TensorRole::temporary, {"H", "P + W", "64"})
      .tensor("total", TensorRole::temporary, {"H", "P + W"})
      .tensor("mixed", TensorRole::temporary, {"H", "P + W", "64"})
      .tensor("first", TensorRole::output, {"P", "H", "64"}, ElementType::f16)
      .tensor("second", TensorRole::output, {"W", "H", "64"}, ElementType::f16)
      .statement("dot_init[h, i, j] : " + seen, "dot[h, i, j]", {}, number(0))
      .statement("dot[h, i, j, e] : " + seen + " and 0 <= e < 64", "dot[h, i, j]", {"q[h, i, e]", "k[h, j, e]"},
                 half(0) * half(1), ReductionOp::add)
      .statement("largest_init[h, i] : " + row, "largest[h, i]", {}, number(-infinity()))
      .statement("largest[h, i, j] : " + seen, "largest[h, i]", {"dot[h, i, j]"}, read(0), ReductionOp::max)
      .statement("power[h, i, j] : " + seen, "power[h, i, j]", {"dot[h, i, j]", "largest[h, i]"},
                 apply(ScalarOp::exp, read(0) - read(1)))
      .statement("weighted_init[h, i, d] : " + row + " and 0 <= d < 64", "weighted[h, i, d]", {}, number(0))
      .statement("weighted[h, i, d, j] : " + seen + " and 0 <= d < 64", "weighted[h, i, d]", {"power[h, i, j]", "v[h, j, d]"},
                 read(0) * half(1), ReductionOp::add)
      .statement("total_init[h, i] : " + row, "total[h, i]", {}, number(0))
      .statement("total[h, i, j] : " + seen, "total[h, i]", {"power[h, i, j]"}, read(0), ReductionOp::add)
      .statement("mixed[h, i, d] : " + row + " and 0 <= d < 64", "mixed[h, i, d]", {"weighted[h, i, d]", "total[h, i]"},
                 read(0) / read(1))
      .statement("first[p, h, d] : 0 <= h < H and 0 <= p < P and 0 <= d < 64", "first[p, h, d]", {"mixed[h, p, d]"},
                 ScalarExpr::cast(ElementType::f16, read(0)))
      .statement("second[w, h, d] : 0 <= h < H and 0 <= w < W and 0 <= d < 64", "second[w, h, d]", {"mixed[h, P + w, d]"},
                 ScalarExpr::cast(ElementType::f16, read(0)))
      .build();
}

TEST(BesideChains, AResultOfSomeRowsAloneStandsInTheKernel) {
  SpaceGuesses guesses(two_results(), {{"H", 32}, {"P", 1024}, {"W", 150}, {"K", 1174}});
  const TileProgram program = guesses.program(0);
  EXPECT_FALSE(is_stored(program, "power"));
  EXPECT_GE(tensor_kernels(program), 1) << "mixed is in registers for the first rows, and in memory for the others";
}

/// out[i, j] = x[i, j] y[j, i], and with `both` times x[j, i].
std::vector<std::string> copied_by_rows(bool both) {
  const std::string pair = "0 <= i < N and 0 <= j < N";
  const ScalarExpr two = read(0) * read(1);
  std::vector<std::string> reads{"x[i, j]", "y[j, i]"};
  if (both) reads.emplace_back("x[j, i]");
  const Nest nest = NestBuilder("pairs", {{"N", 70}})
                        .tensor("x", TensorRole::input, {"N", "N"})
                        .tensor("y", TensorRole::input, {"N", "N"})
                        .tensor("out", TensorRole::output, {"N", "N"})
                        .statement("out[i, j] : " + pair, "out[i, j]", reads, both ? two * read(2) : two)
                        .build();
  const Sizes sizes{{"N", 2000}};
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const NestStructure structure = analyse(schedules.base({}), sizes);
  const auto rows = transposed_rows(nest, structure, find_fusion_groups(schedules.base({}), structure, Fusion::careful).at(0));
  return rows ? rows->tensors : std::vector<std::string>{"none"};
}

TEST(BesideChains, PairsAcrossTheDiagonalAreReadWhereTheyAre) {
  EXPECT_EQ(copied_by_rows(false), std::vector<std::string>{"y"});
  EXPECT_EQ(copied_by_rows(true), std::vector<std::string>{"y"}) << "a block copies one part of x, and no two";
}

/// A sum of what a kernel makes stands behind sums of its columns, and goes where it is made.
TEST(BesideChains, SumsOfWhatAKernelMakesGoThere) {
  const std::string row = "0 <= g < G", all = row + " and 0 <= t < T";
  const Nest nest =
      NestBuilder("sums_behind", {{"G", 3}, {"T", 70}})
          .tensor("score", TensorRole::input, {"G", "T"})
          .tensor("top", TensorRole::temporary, {"G"})
          .tensor("power", TensorRole::temporary, {"G", "T"})
          .tensor("column", TensorRole::temporary, {"T"})
          .tensor("total", TensorRole::temporary, {"G"})
          .tensor("out", TensorRole::output, {"G", "T"})
          .statement("top_init[g] : " + row, "top[g]", {}, number(-infinity()))
          .statement("top[g, t] : " + all, "top[g]", {"score[g, t]"}, read(0), ReductionOp::max)
          .statement("power[g, t] : " + all, "power[g, t]", {"score[g, t]", "top[g]"}, apply(ScalarOp::exp, read(0) - read(1)))
          .statement("column_init[t] : 0 <= t < T", "column[t]", {}, number(0))
          .statement("column[t, g] : " + all, "column[t]", {"power[g, t]"}, read(0), ReductionOp::add)
          .statement("total_init[g] : " + row, "total[g]", {}, number(0))
          .statement("total[g, t] : " + all, "total[g]", {"power[g, t]"}, read(0), ReductionOp::add)
          .statement("out[g, t] : " + all, "out[g, t]", {"column[t]", "total[g]"}, read(0) / read(1))
          .build();
  const Sizes sizes{{"G", 384}, {"T", 3200}};
  BaseSchedules schedules(nest_for_tuning(nest, sizes));
  const NestStructure structure = analyse(schedules.base({}), sizes);
  const std::vector<FusionGroup> groups = find_fusion_groups(schedules.base({}), structure, Fusion::careful);
  const auto group_of = [&](const std::string& statement) {
    return std::find_if(groups.begin(), groups.end(),
                        [&](const FusionGroup& group) {
                          return std::any_of(group.loop_groups.begin(), group.loop_groups.end(), [&](int u) {
                            const auto& names = structure.loop_groups[static_cast<std::size_t>(u)].statements;
                            return std::find(names.begin(), names.end(), statement) != names.end();
                          });
                        }) -
           groups.begin();
  };
  EXPECT_EQ(group_of("total"), group_of("power"));
  EXPECT_EQ(group_of("total_init"), group_of("power"));
  EXPECT_NE(group_of("column"), group_of("power"));
}

}  // namespace
}  // namespace nestor
