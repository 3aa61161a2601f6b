// Scores that are summed up along rows and along columns, as on attention's way back, gates of pairs beside scores, and softmaxes that are mixed:
// kernels on tensor cores alone, and nothing of all pairs in memory.
#include "codegen/gpu/kernel_plans.h"
#include "support/nests/half_values.h"
#include "support/nests/tensor_nests.h"
#include "unit/autotune/searched_problem.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

using namespace samples;
using testing::SearchedProblem;

const std::string kRow = "0 <= b < B and 0 <= i < T", kColumn = "0 <= b < B and 0 <= j < T", kPair = kRow + " and 0 <= j <= i",
                  kTerms = " and 0 <= e < 64";

constexpr double kRoundedShares = 2e-2;  // they go into products in 16 bits, up to 129 of them, some larger than 1

ScalarExpr power(const ScalarExpr& value) { return ScalarExpr::make(ScalarOp::exp, {value}); }

NestBuilder of_queries_and_keys(const std::string& name) {
  NestBuilder builder(name, {{"B", 16}, {"T", 1024}});
  for (const char* input : {"q", "k"}) builder.tensor(input, TensorRole::input, {"B", "T", "64"}, kHalf);
  for (const char* pairs : {"s", "share"}) builder.tensor(pairs, TensorRole::temporary, {"B", "T", "T"});
  return builder;
}

NestBuilder& add_product(NestBuilder& builder) {
  return builder.statement("s_init[b, i, j] : " + kPair, "s[b, i, j]", {}, number(0))
      .statement("s[b, i, j, e] : " + kPair + kTerms, "s[b, i, j]", {"q[b, i, e]", "k[b, j, e]"}, wide(0) * wide(1),
                 ReductionOp::add);
}

/// share = exp(s / 8 - top); dq = 3 share k, stored before dk = 3 share^T q begins.
Nest gradients_of_queries_and_keys() {
  NestBuilder builder = of_queries_and_keys("gradients");
  builder.tensor("top", TensorRole::input, {"B", "T"});
  for (const char* name : {"dq", "dk"}) {
    builder.tensor(std::string(name) + "_sum", TensorRole::temporary, {"B", "T", "64"})
        .tensor(name, TensorRole::output, {"B", "T", "64"}, kHalf);
  }
  add_product(builder).statement("share[b, i, j] : " + kPair, "share[b, i, j]", {"s[b, i, j]", "top[b, i]"},
                                 power(read(0) * number(0.125) - read(1)));
  const auto sum = [&](const std::string& name, const std::string& own, const std::string& row, const std::string& other) {
    const std::string at = "[b, " + own + ", e]";
    builder.statement(name + "_init" + at + " : " + row + kTerms, name + "_sum" + at, {}, number(0))
        .statement(name + "_add[b, i, j, e] : " + kPair + kTerms, name + "_sum" + at, {"share[b, i, j]", other},
                   read(0) * wide(1), ReductionOp::add)
        .statement(name + at + " : " + row + kTerms, name + at, {name + "_sum" + at},
                   ScalarExpr::cast(kHalf, read(0) * number(3)));
  };
  sum("dq", "i", kRow, "k[b, j, e]");
  sum("dk", "j", kColumn, "q[b, i, e]");
  return builder.build();
}

/// share = s exp(gates - max gates) with gates = decay_i - decay_j + gate_j, where decay is a running sum; out = share k.
Nest gated_scores() {
  NestBuilder builder = of_queries_and_keys("gated_scores");
  for (const char* input : {"kept", "gate"}) builder.tensor(input, TensorRole::input, {"B", "T"});
  for (const char* rows : {"decay", "top"}) builder.tensor(rows, TensorRole::temporary, {"B", "T"});
  builder.tensor("gates", TensorRole::temporary, {"B", "T", "T"})
      .tensor("sum", TensorRole::temporary, {"B", "T", "64"})
      .tensor("out", TensorRole::output, {"B", "T", "64"}, kHalf)
      .statement("decay_init[b, i] : " + kRow, "decay[b, i]", {}, number(0))
      .statement("decay[b, i, l] : " + kRow + " and 0 <= l <= i", "decay[b, i]", {"kept[b, l]"}, read(0) * number(0.0625),
                 ReductionOp::add)
      .statement("gates[b, i, j] : " + kPair, "gates[b, i, j]", {"decay[b, i]", "decay[b, j]", "gate[b, j]"},
                 read(0) - read(1) + read(2))
      .statement("top_init[b, i] : " + kRow, "top[b, i]", {}, number(-std::numeric_limits<double>::infinity()))
      .statement("top[b, i, j] : " + kPair, "top[b, i]", {"gates[b, i, j]"}, read(0), ReductionOp::max);
  add_product(builder)
      .statement("share[b, i, j] : " + kPair, "share[b, i, j]", {"s[b, i, j]", "gates[b, i, j]", "top[b, i]"},
                 read(0) * power(read(1) - read(2)))
      .statement("sum_init[b, i, e] : " + kRow + kTerms, "sum[b, i, e]", {}, number(0))
      .statement("sum[b, i, e, j] : " + kPair + kTerms, "sum[b, i, e]", {"share[b, i, j]", "k[b, j, e]"}, read(0) * wide(1),
                 ReductionOp::add)
      .statement("out[b, i, e] : " + kRow + kTerms, "out[b, i, e]", {"sum[b, i, e]"}, ScalarExpr::cast(kHalf, read(0)));
  return builder.build();
}

/// out = sum over m of g[t, m] exp(s - top) / total, with s = x[m] w' and top and total of its rows: two softmaxes, mixed column by column.
Nest mixture_of_softmaxes() {
  const std::string part = "0 <= m < 2", row = part + " and 0 <= t < T", score = row + " and 0 <= v < V",
                    cell = "0 <= t < T and 0 <= v < V";
  return NestBuilder("mixture", {{"T", 1024}, {"V", 4096}})
      .tensor("x", TensorRole::input, {"2", "T", "64"}, kHalf)
      .tensor("w", TensorRole::input, {"V", "64"}, kHalf)
      .tensor("g", TensorRole::input, {"T", "2"})
      .tensor("s", TensorRole::temporary, {"2", "T", "V"})
      .tensor("top", TensorRole::temporary, {"2", "T"})
      .tensor("total", TensorRole::temporary, {"2", "T"})
      .tensor("mixed", TensorRole::temporary, {"T", "V"})
      .tensor("out", TensorRole::output, {"T", "V"}, kHalf)
      .statement("s_init[m, t, v] : " + score, "s[m, t, v]", {}, number(0))
      .statement("s[m, t, v, e] : " + score + kTerms, "s[m, t, v]", {"x[m, t, e]", "w[v, e]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("top_init[m, t] : " + row, "top[m, t]", {}, number(-infinity()))
      .statement("top[m, t, v] : " + score, "top[m, t]", {"s[m, t, v]"}, read(0), ReductionOp::max)
      .statement("total_init[m, t] : " + row, "total[m, t]", {}, number(0))
      .statement("total[m, t, v] : " + score, "total[m, t]", {"s[m, t, v]", "top[m, t]"}, power(read(0) - read(1)),
                 ReductionOp::add)
      .statement("mixed_init[t, v] : " + cell, "mixed[t, v]", {}, number(0))
      .statement("mixed[t, v, m] : " + cell + " and " + part, "mixed[t, v]",
                 {"g[t, m]", "s[m, t, v]", "top[m, t]", "total[m, t]"}, read(0) * power(read(1) - read(2)) / read(3),
                 ReductionOp::add)
      .statement("out[t, v] : " + cell, "out[t, v]", {"mixed[t, v]"}, ScalarExpr::cast(kHalf, read(0)))
      .build();
}

struct Kernels {
  int products = 0, others = 0;
};

/// Kernels of the first guess, which nothing refuses.
Kernels first_kernels(SearchedProblem& problem) {
  const Candidate candidate = problem.space->candidate(problem.space->defaults().front());
  EXPECT_EQ(candidate.infeasible, "");
  EXPECT_FALSE(candidate.cut);
  Kernels found;
  for (const Step& step : candidate.steps) {
    found.products += step.name == "tensor_cores" ? 1 : 0;
    found.others += step.name == "gpu_threads" ? 1 : 0;
  }
  return found;
}

TEST(BothDirections, HaveAProductEachAndNoPairsInMemory) {
  SearchedProblem problem(gradients_of_queries_and_keys(), {});
  const Kernels kernels = first_kernels(problem);
  EXPECT_EQ(kernels.products, 2);
  EXPECT_EQ(kernels.others, 0);
  for (const std::int64_t tokens : {1, 70, 129})
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"B", 2}, {"T", tokens}}, kRoundedShares), "") << tokens;
}

TEST(BothDirections, GatesOfPairsStayBesideTheScores) {
  SearchedProblem problem(gated_scores(), {});
  const Kernels kernels = first_kernels(problem);
  EXPECT_EQ(kernels.products, 1);
  EXPECT_EQ(kernels.others, 1) << "the running sums alone, which rows and columns read";
  for (const std::int64_t tokens : {1, 70, 129})
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), {{"B", 2}, {"T", tokens}}, 4e-3), "") << tokens;
}

TEST(BothDirections, MixedSoftmaxesHaveTheirScoresInTilesTwice) {
  SearchedProblem problem(mixture_of_softmaxes(), {});
  const Kernels kernels = first_kernels(problem);
  EXPECT_EQ(kernels.products, 2) << "for maxima and sums of each, and for the mixture, which has both scores at once";
  EXPECT_EQ(kernels.others, 1) << "what combines the parts of rows";
  for (const Sizes& sizes : {Sizes{{"T", 70}, {"V", 304}}, Sizes{{"T", 1}, {"V", 8}}})
    EXPECT_EQ(problem.difference(problem.space->defaults().front(), sizes, 4e-3), "");
}

}  // namespace
}  // namespace nestor
