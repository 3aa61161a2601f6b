// Rule row_reduction: which reductions it takes, what it makes of them, and that infinities and NaN stay where they are.
#include "poly/algebra/all_rules.h"
#include "support/error_text.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using Target = std::vector<std::string>;

constexpr const char* kName = "row_reduction";

std::vector<Target> targets(const Nest& nest) {
  std::vector<Target> found;
  for (const RuleMatch& match : rule(kName).find(nest)) found.push_back(match.target);
  return found;
}

Nest along_rows(const Nest& nest, const Target& target = {"sum", "j"}) {
  Nest result = rule(kName).apply(nest, target).nest;
  validate(result);
  return result;
}

bool has_points(const Nest& nest, const std::string& statement, const std::string& points) {
  const isl::set& domain = nest.statement(statement).domain;
  return domain.intersect_params(nest.context).is_equal(parse_set(points, "test").intersect_params(nest.context));
}

/// Rows i from -3 on, or columns j.
Nest shifted(const std::string& row, const std::string& column) {
  return with_statement(summed_pairs(), "sum", [&](Statement& sum) {
    const std::string i = "i + " + row, j = "j + " + column;
    const std::string points = " : 0 <= b < B and 0 <= " + i + " < M and 0 <= " + j + " < N }";
    sum.domain = parse_set("[B, M, N, K] -> { sum[b, i, j]" + points, "test");
    sum.reads[0].relation = parse_map("[B, M, N, K] -> { sum[b, i, j] -> loss[b, " + i + ", " + j + "] }", "test");
  });
}

TEST(RowReduction, ARowIsReducedBeforeRowsAre) {
  const Nest nest = along_rows(summed_pairs());
  EXPECT_THAT(statement_names(nest), ElementsAre("product_init", "product", "loss", "init", "out_rows_init", "out_rows", "sum"));
  EXPECT_THAT(nest.statement("out_rows").dims, ElementsAre("b", "i", "j"));
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("b", "i"));
  EXPECT_TRUE(has_points(nest, "out_rows_init", "[B, M, N, K] -> { out_rows_init[b, i] : 0 <= b < B and 0 <= i < M and N > 0 }"));
  EXPECT_TRUE(has_points(nest, "sum", "[B, M, N, K] -> { sum[b, i] : 0 <= b < B and 0 <= i < M and N > 0 }"));
  EXPECT_EQ(nest.tensor("out_rows").role, TensorRole::temporary);
  EXPECT_EQ(nest.tensor("out_rows").type, ElementType::f32);
  EXPECT_EQ(nest.tensor("out_rows").shape.size(), 2U);
  EXPECT_EQ(nest.statement("out_rows").reduction, ReductionOp::add);
  EXPECT_EQ(nest.statement("sum").reduction, ReductionOp::add);
  EXPECT_TRUE(targets(nest).empty()) << "once";
  EXPECT_EQ(rule(kName).find(summed_pairs()).at(0).description, "sum reduces along j, then what that leaves");
}

TEST(RowReduction, RowsWithoutPointsHaveNoElement) {
  const Nest nest = along_rows(summed_pairs({.mask = " and j < i"}));
  EXPECT_TRUE(has_points(nest, "sum", "[B, M, N, K] -> { sum[b, i] : 0 <= b < B and 1 <= i < M and N > 0 }"));
}

TEST(RowReduction, ReductionsOverAllPairsOfAProductAreTaken) {
  const std::vector<Target> along_columns{{"sum", "j"}};
  EXPECT_EQ(targets(summed_pairs()), along_columns);
  for (const ReductionOp reduction : {ReductionOp::max, ReductionOp::min})
    EXPECT_EQ(targets(summed_pairs({.reduction = reduction})), along_columns);
  for (const ElementType type : {ElementType::f16, ElementType::bf16})
    EXPECT_EQ(targets(summed_pairs({.type = type})), along_columns) << "of the product's operands";
  EXPECT_EQ(targets(summed_pairs({.mask = " and j <= i"})), along_columns);
  EXPECT_EQ(targets(summed_pairs({.element = "product[b, i, j]", .value = read(0) * read(0)})), along_columns) << "squares";
  EXPECT_EQ(targets(summed_pairs({.mask = " and i < N and j < M", .element = "loss[b, j, i]"})),
            std::vector<Target>({{"sum", "i"}}))
      << "rows are those of the tensor";
  EXPECT_EQ(targets(summed_pairs({.results = 1023})), along_columns);
}

TEST(RowReduction, OtherReductionsStayAsTheyAre) {
  EXPECT_TRUE(targets(summed_pairs({.results = 1024})).empty()) << "blocks enough";
  EXPECT_TRUE(targets(summed_pairs({.columns = 31})).empty()) << "fewer columns than a tile";
  EXPECT_EQ(targets(summed_pairs({.columns = 32})).size(), 1U);
  EXPECT_TRUE(targets(summed_pairs({.mask = " and j < K", .element = "x[b, i, j]"})).empty()) << "an input";
  EXPECT_TRUE(targets(summed_pairs({.total = ElementType::bf16})).empty());
  EXPECT_TRUE(targets(summed_pairs({.total = ElementType::f16})).empty());
  EXPECT_EQ(targets(summed_pairs({.mask = " and b < M and i < B", .element = "loss[i, b, j]"})).size(), 1U) << "i is a row";
  EXPECT_TRUE(targets(summed_pairs({.mask = " and b < N and j < B and i < M", .element = "loss[j, i, b]"})).empty())
      << "its last index is kept";
  EXPECT_TRUE(targets(matmul()).empty()) << "one dim";
  EXPECT_TRUE(targets(normalised_attention()).empty()) << "one dim";
  EXPECT_TRUE(targets(channel_norm()).empty()) << "of inputs alone";
  EXPECT_TRUE(targets(shifted("3", "0")).empty()) << "rows have negative values";
  EXPECT_EQ(targets(shifted("0", "3")), std::vector<Target>({{"sum", "j"}})) << "no tensor has columns";
  EXPECT_EQ(targets(shifted("-3", "0")).size(), 1U) << "rows from 3 on";
}

/// Squares that are returned, and summed up, beside a sum of inputs.
TEST(RowReduction, WhatIsMadePointByPointIsReducedWhereItIsMade) {
  const auto nest = [](std::int64_t rows, TensorRole role) {
    return NestBuilder("norm", {{"M", rows}, {"N", 1024}})
        .tensor("x", TensorRole::input, {"M", "N"})
        .tensor("square", role, {"M", "N"})
        .tensor("sum", TensorRole::temporary, {})
        .tensor("other", TensorRole::temporary, {})
        .tensor("out", TensorRole::output, {"M", "N"})
        .statement("square[i, j] : 0 <= i < M and 0 <= j < N", "square[i, j]", {"x[i, j]"}, read(0) * read(0))
        .statement("sum_init[]", "sum[]", {}, number(0))
        .statement("sum[i, j] : 0 <= i < M and 0 <= j < N", "sum[]", {"square[i, j]"}, read(0), ReductionOp::add)
        .statement("other_init[]", "other[]", {}, number(0))
        .statement("other[i, j] : 0 <= i < M and 0 <= j < N", "other[]", {"x[i, j]"}, read(0), ReductionOp::add)
        .statement("out[i, j] : 0 <= i < M and 0 <= j < N", "out[i, j]", {"square[i, j]", "sum[]", "other[]"},
                   read(0) * read(1) + read(2))
        .build();
  };
  EXPECT_EQ(targets(nest(1024, TensorRole::output)), std::vector<Target>({{"sum", "j"}, {"other", "j"}}));
  EXPECT_EQ(targets(nest(1024, TensorRole::temporary)).size(), 2U) << "read by others as well";
  EXPECT_TRUE(targets(nest(1000, TensorRole::output)).empty()) << "few elements";
  EXPECT_TRUE(targets(nest(1 << 17, TensorRole::output)).empty()) << "more rows than one block adds up";
  const Nest before = nest(1024, TensorRole::output), after = along_rows(before);
  EXPECT_THAT(statement_names(after),
              ElementsAre("square", "sum_rows_init", "sum_rows", "sum_init", "sum", "other_init", "other", "out"));
  EXPECT_EQ(differences(before, after, {{"M", 2}, {"N", 3}}, 50), 0);
}

/// Gradients of a layer with a scale for each column and a factor for all: one kernel has both sums, column by column.
/// `out = Σ_ij (x_ij / s_i)²` with `s_i = Σ_j x_ij²`, of N columns.
Nest rows_again(std::int64_t columns, const std::string& statistic = "s[i]") {
  const std::string row = "0 <= i < M", pair = row + " and 0 <= j < N";
  const ScalarExpr scaled = read(0) / read(1);
  return NestBuilder("rows_again", {{"M", 4096}, {"N", columns}})
      .tensor("x", TensorRole::input, {"M", "N"})
      .tensor("given", TensorRole::input, {"M"})
      .tensor("s", TensorRole::temporary, {"M"})
      .tensor("out", TensorRole::output, {})
      .statement("s_init[i] : " + row, "s[i]", {}, number(0))
      .statement("s[i, j] : " + pair, "s[i]", {"x[i, j]"}, read(0) * read(0), ReductionOp::add)
      .statement("init[]", "out[]", {}, number(0))
      .statement("sum[i, j] : " + pair, "out[]", {"x[i, j]", statistic}, scaled * scaled, ReductionOp::add)
      .build();
}

TEST(RowReduction, RowsThatAKernelReducesAnywayAreReducedThereAgain) {
  EXPECT_THAT(targets(rows_again(4096)), ElementsAre(Target{"sum", "j"}));
  EXPECT_TRUE(targets(rows_again(128)).empty()) << "of less than 2^20 elements";
  EXPECT_TRUE(targets(rows_again(4096, "given[i]")).empty()) << "not by what it has found of each";
  EXPECT_THAT(statement_names(along_rows(rows_again(4096))),
              ElementsAre("s_init", "s", "out_rows_init", "out_rows", "init", "sum"));
}

TEST(RowReduction, ColumnsGoFirstBesideSumsForEachColumn) {
  const std::string pair = "0 <= i < M and 0 <= j < N";
  const auto nest = [&](const std::string& kept) {
    const std::string extent = kept == "j" ? "N" : "M";
    return NestBuilder("gradients", {{"M", 1024}, {"N", 1024}})
        .tensor("x", TensorRole::input, {"M", "N"})
        .tensor("made", TensorRole::output, {"M", "N"})
        .tensor("scale", TensorRole::output, {extent})
        .tensor("out", TensorRole::output, {})
        .statement("made[i, j] : " + pair, "made[i, j]", {"x[i, j]"}, read(0) * read(0))
        .statement("scale_init[k] : 0 <= k < " + extent, "scale[k]", {}, number(0))
        .statement("scale[i, j] : " + pair, "scale[" + kept + "]", {"x[i, j]"}, read(0), ReductionOp::add)
        .statement("out_init[]", "out[]", {}, number(0))
        .statement("sum[i, j] : " + pair, "out[]", {"made[i, j]"}, read(0), ReductionOp::add)
        .build();
  };
  EXPECT_EQ(targets(nest("j")), std::vector<Target>({{"sum", "i"}}));
  EXPECT_EQ(targets(nest("i")), std::vector<Target>({{"sum", "j"}}));
  EXPECT_EQ(differences(nest("j"), along_rows(nest("j"), {"sum", "i"}), {{"M", 3}, {"N", 2}}, 20), 0);
}

/// out[p, q] = sum over i, j of (x y)[p, i, j] z[q, i, j]: results are a product of matrices themselves.
TEST(RowReduction, ProductsOfMatricesStaySo) {
  const std::string pair = "0 <= p < P and 0 <= i < I and 0 <= j < J", element = "0 <= p < P and 0 <= q < Q";
  const auto nest = [&](const std::string& other) {
    return NestBuilder("product_of_pairs", {{"P", 3}, {"Q", 3}, {"I", 40}, {"J", 40}, {"K", 3}})
        .tensor("x", TensorRole::input, {"P", "I", "K"})
        .tensor("y", TensorRole::input, {"P", "J", "K"})
        .tensor("z", TensorRole::input, {"Q", "I", "J"})
        .tensor("product", TensorRole::temporary, {"P", "I", "J"})
        .tensor("out", TensorRole::output, {"P", "Q"})
        .statement("start[p, i, j] : " + pair, "product[p, i, j]", {}, number(0))
        .statement("product[p, i, j, k] : " + pair + " and 0 <= k < K", "product[p, i, j]", {"x[p, i, k]", "y[p, j, k]"},
                   read(0) * read(1), ReductionOp::add)
        .statement("init[p, q] : " + element, "out[p, q]", {}, number(0))
        .statement(
            "sum[p, q, i, j] : " + element + " and 0 <= i < I and 0 <= j < J" + (other == "z[q, i, j]" ? "" : " and p < Q"),
            "out[p, q]", {"product[p, i, j]", other}, read(0) * read(1), ReductionOp::add)
        .build();
  };
  EXPECT_TRUE(targets(nest("z[q, i, j]")).empty());
  EXPECT_EQ(targets(nest("z[p, i, j]")), std::vector<Target>({{"sum", "j"}})) << "a weight of each";
}

TEST(RowReduction, InfinitiesAndNaNStayWhereTheyAre) {
  const Sizes sizes{{"B", 2}, {"M", 3}, {"N", 4}, {"K", 2}};
  const SummedPairs plain{.element = "product[b, i, j]"};  // of either sign, unlike a loss
  std::vector<Nest> nests{summed_pairs(), shifted("-1", "0"), shifted("0", "3")};
  for (const ReductionOp reduction : {ReductionOp::add, ReductionOp::max, ReductionOp::min, ReductionOp::mul}) {
    for (const char* mask : {"", " and j <= i", " and j < i", " and i < j", " and (i + j) mod 2 = 0"}) {
      SummedPairs pairs = plain;
      pairs.reduction = reduction;
      pairs.mask = mask;
      nests.push_back(summed_pairs(pairs));
    }
  }
  for (const Nest& nest : nests) {
    ASSERT_FALSE(targets(nest).empty());
    for (const Target& target : targets(nest)) EXPECT_EQ(differences(nest, along_rows(nest, target), sizes, 30), 0);
    EXPECT_EQ(differences(nest, along_rows(nest), {{"B", 1}, {"M", 1}, {"N", 1}, {"K", 1}}, 5), 0);
    EXPECT_EQ(differences(nest, along_rows(nest), {{"B", 2}, {"M", 3}, {"N", 1}, {"K", 3}}, 5), 0);
  }
  EXPECT_EQ(differences(summed_pairs(plain), along_rows(summed_pairs(plain), {"sum", "i"}), sizes, 30), 0) << "by columns";
}

TEST(RowReduction, WrongRewritesAreSeen) {
  const Sizes sizes{{"B", 2}, {"M", 3}, {"N", 4}, {"K", 2}};
  const SummedPairs largest{.mask = " and j <= i", .reduction = ReductionOp::max, .element = "product[b, i, j]"};
  const auto mutant = [&](const SummedPairs& pairs, const std::string& name, const std::function<void(Statement&)>& change) {
    const Nest before = summed_pairs(pairs);
    return differences(before, with_statement(along_rows(before), name, change), sizes, 40);
  };
  EXPECT_EQ(mutant(largest, "sum", [](Statement&) {}), 0);
  EXPECT_GT(mutant(largest, "out_rows_init", [](Statement& start) { start.value = number(0); }), 0) << "rows below 0";
  EXPECT_GT(mutant(largest, "out_rows", [](Statement& row) { row.reduction = ReductionOp::add; }), 0);
  EXPECT_GT(mutant(largest, "sum", [](Statement& rows) { rows.reduction = ReductionOp::min; }), 0);
  EXPECT_GT(mutant({}, "out_rows_init", [](Statement& start) { start.value = number(1); }), 0);
  EXPECT_GT(mutant({}, "out_rows",
                   [](Statement& row) {
                     row.domain = row.domain.subtract(parse_set("[B, M, N, K] -> { out_rows[b, i, 0] }", "test"));
                   }),
            0)
      << "a column is left out";
  EXPECT_GT(
      mutant({}, "sum",
             [](Statement& rows) { rows.domain = rows.domain.subtract(parse_set("[B, M, N, K] -> { sum[b, 0] }", "test")); }),
      0)
      << "a row is left out";
}

}  // namespace
}  // namespace nestor
