// Reductions over rows and columns of products: what is guessed first, and that its code is right.
#include "support/nests/sample_nests.h"
#include "support/nests/space_guesses.h"
#include "support/simt/simt_image.h"
#include "unit/autotune/candidate_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace nestor {
namespace {

using namespace samples;
using testing::count_steps;

bool applies(const Candidate& candidate, const std::string& rule, const std::string& statement = "") {
  return std::any_of(candidate.steps.begin(), candidate.steps.end(), [&](const Step& step) {
    return step.name == "apply_rule" && step.args.at(0) == rule && (statement.empty() || step.args.at(1) == statement);
  });
}

std::string wrong(testing::SpaceGuesses& guesses, std::size_t k, const Sizes& ragged, double tolerance) {
  return testing::run_emulated(compile_nvptx(guesses.program(k), {}), guesses.meaning(), ragged, {.tolerance = tolerance}, {1});
}

/// out = sum over i, j of log(1 + exp(sum over k of x[i, k] y[j, k])): a loss of all pairs.
Nest loss_of_all_pairs() {
  const std::string pair = "0 <= i < P and 0 <= j < P";
  const auto factor = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::bf16)); };
  const ScalarExpr large = ScalarExpr::make(ScalarOp::max, {read(0), number(0)}),
                   small = apply(ScalarOp::log1p, apply(ScalarOp::exp, number(0) - apply(ScalarOp::abs, read(0))));
  return NestBuilder("loss_of_all_pairs", {{"P", 4096}, {"K", 768}})
      .tensor("x", TensorRole::input, {"P", "K"}, ElementType::bf16)
      .tensor("y", TensorRole::input, {"P", "K"}, ElementType::bf16)
      .tensor("product", TensorRole::temporary, {"P", "P"})
      .tensor("loss", TensorRole::temporary, {"P", "P"})
      .tensor("total", TensorRole::temporary, {})
      .tensor("out", TensorRole::output, {})
      .statement("product_init[i, j] : " + pair, "product[i, j]", {}, number(0))
      .statement("product[i, j, k] : " + pair + " and 0 <= k < K", "product[i, j]", {"x[i, k]", "y[j, k]"}, factor(0) * factor(1),
                 ReductionOp::add)
      .statement("loss[i, j] : " + pair, "loss[i, j]", {"product[i, j]"}, large + small)
      .statement("total_init[]", "total[]", {}, number(0))
      .statement("total[i, j] : " + pair, "total[]", {"loss[i, j]"}, read(0), ReductionOp::add)
      .statement("out[]", "out[]", {"total[]"}, read(0) * number(0x1p-12))
      .build();
}

/// out = sums of squares of the products of two sets of features, and of each with itself: the alignment of kernels.
Nest aligned_features() {
  NestBuilder builder("aligned_features", {{"R", 8192}, {"I", 768}, {"J", 512}});
  builder.tensor("one", TensorRole::input, {"R", "I"}, ElementType::bf16)
      .tensor("other", TensorRole::input, {"R", "J"}, ElementType::bf16);
  const auto add = [&](const std::string& name, const std::string& a, const std::string& b, const std::string& rows,
                       const std::string& columns) {
    const std::string pair = "0 <= i < " + rows + " and 0 <= j < " + columns, product = name + "_product",
                      element = product + "[i, j]";
    const auto factor = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::bf16)); };
    builder.tensor(product, TensorRole::temporary, {rows, columns})
        .tensor(name, TensorRole::temporary, {})
        .statement(product + "_init[i, j] : " + pair, element, {}, number(0))
        .statement(product + "[i, j, r] : " + pair + " and 0 <= r < R", element, {a + "[r, i]", b + "[r, j]"},
                   factor(0) * factor(1), ReductionOp::add)
        .statement(name + "_init[]", name + "[]", {}, number(0))
        .statement(name + "[i, j] : " + pair, name + "[]", {element}, read(0) * read(0), ReductionOp::add);
  };
  add("between", "one", "other", "I", "J");
  add("within", "one", "one", "I", "I");
  add("beside", "other", "other", "J", "J");
  return builder.tensor("out", TensorRole::output, {})
      .statement("out[]", "out[]", {"between[]", "within[]", "beside[]"}, read(0) / apply(ScalarOp::sqrt, read(1) * read(2)))
      .build();
}

/// out = sum over columns i, j of the squares of sum over r of x[r, i] x[r, j] / 64, in f32.
Nest covariance() {
  const std::string pair = "0 <= i < C and 0 <= j < C";
  return NestBuilder("covariance", {{"R", 4096}, {"C", 1024}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("product", TensorRole::temporary, {"C", "C"})
      .tensor("both", TensorRole::temporary, {"C", "C"})
      .tensor("out", TensorRole::output, {})
      .statement("product_init[i, j] : " + pair, "product[i, j]", {}, number(0))
      .statement("product[i, j, r] : " + pair + " and 0 <= r < R", "product[i, j]", {"x[r, i]", "x[r, j]"}, read(0) * read(1),
                 ReductionOp::add)
      .statement("both[i, j] : " + pair, "both[i, j]", {"product[i, j]"}, read(0) * number(1.0 / 64))
      .statement("out_init[]", "out[]", {}, number(0))
      .statement("out[i, j] : " + pair, "out[]", {"both[i, j]"}, read(0) * read(0), ReductionOp::add)
      .build();
}

std::string listed(const Candidate& candidate) {
  std::string text;
  for (const Step& step : candidate.steps) text += describe(step) + "\n";
  return text;
}

TEST(RowReductions, ALossOfAllPairsLeavesPartsOfRowsInTheKernelOfItsProduct) {
  testing::SpaceGuesses guesses(loss_of_all_pairs(), {});
  const Candidate first = guesses.space->candidate(guesses.points.at(0));
  ASSERT_EQ(first.infeasible, "");
  EXPECT_TRUE(applies(first, "row_reduction", "total"));
  EXPECT_TRUE(applies(first, "split_reduction", "total_rows")) << listed(first);
  EXPECT_EQ(count_steps(first, "tensor_cores"), 1);
  for (const std::int64_t pairs : {130, 300, 1}) EXPECT_EQ(wrong(guesses, 0, {{"P", pairs}, {"K", 72}}, 4e-3), "") << pairs;
}

TEST(RowReductions, ProductsOfSeveralShapesHaveNoPartsBesideTheirTiles) {
  testing::SpaceGuesses guesses(aligned_features(), {});
  int feasible = 0;
  for (std::size_t k = 0; k < guesses.points.size(); ++k) {
    const Candidate candidate = guesses.space->candidate(guesses.points[k]);
    if (!candidate.infeasible.empty()) continue;
    ++feasible;
    for (const char* rows : {"between_rows", "within_rows", "beside_rows"})
      EXPECT_FALSE(applies(candidate, "split_reduction", rows)) << k << " " << rows;
  }
  EXPECT_GT(feasible, 3);
  const Candidate first = guesses.space->candidate(guesses.points.at(0));
  for (const char* name : {"between", "within", "beside"}) EXPECT_TRUE(applies(first, "row_reduction", name));
  EXPECT_EQ(count_steps(first, "tensor_cores"), 3);
  EXPECT_EQ(wrong(guesses, 0, {{"R", 71}, {"I", 72}, {"J", 136}}, 4e-3), "");
}

TEST(RowReductions, ACovarianceInF32IsOneKernelOfSixProducts) {
  testing::SpaceGuesses guesses(covariance(), {});
  const Candidate first = guesses.space->candidate(guesses.points.at(0));
  ASSERT_EQ(first.infeasible, "");
  EXPECT_TRUE(applies(first, "bf16x6", "product"));
  EXPECT_TRUE(applies(first, "row_reduction", "out"));
  EXPECT_EQ(count_steps(first, "tensor_cores"), 1) << listed(first);
  EXPECT_EQ(wrong(guesses, 0, {{"R", 75}, {"C", 132}}, 1e-5), "");
}

TEST(RowReductions, FewProductsOnLanesLeaveRowsForManyBlocks) {
  testing::SpaceGuesses guesses(covariance(), {{"R", 64}, {"C", 512}});
  const Candidate first = guesses.space->candidate(guesses.points.at(0));
  ASSERT_EQ(first.infeasible, "");
  EXPECT_EQ(count_steps(first, "tensor_cores"), 0);
  EXPECT_TRUE(applies(first, "row_reduction", "out")) << listed(first);
  EXPECT_EQ(wrong(guesses, 0, {{"R", 5}, {"C", 130}}, 1e-5), "");
}

}  // namespace
}  // namespace nestor
