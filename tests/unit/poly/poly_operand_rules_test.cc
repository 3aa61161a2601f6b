// Rules about operands: the same results, with operands that tiles of products can be made of.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"
#include "support/error.h"
#include "support/nests/gathered_nests.h"
#include "support/nests/masked_images.h"
#include "support/nests/operand_nests.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/scored_rows.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <isl/aff.h>
#include <isl/set.h>

#include <limits>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

using ::testing::IsEmpty;

std::vector<std::string> reads_of(const Nest& nest, const std::string& statement) {
  std::vector<std::string> tensors;
  for (const Access& read : nest.statement(statement).reads) tensors.push_back(read.tensor);
  return tensors;
}

std::size_t matches(const std::string& name, const Nest& nest) { return rule(name).find(nest).size(); }

TEST(BatchFirst, OperandsAndSumsGetTheirBatchInFront) {
  const Nest nest = rule("batch_first").apply(interleaved_products(), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("a_copy").dims, ElementsAre("l", "i", "q"));
  EXPECT_THAT(nest.statement("b_copy").dims, ElementsAre("l", "j", "q"));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("a_copy", "b_copy"));
  EXPECT_EQ(nest.tensor("a_copy").type, ElementType::f16);
  EXPECT_TRUE(nest.statement("sum").write.relation.is_equal(parse_map("[N, L] -> { sum[i, j, l, q] -> sums[l, i, j] }", "test")));
  EXPECT_EQ(matches("batch_first", nest), 0U) << "once";
}

TEST(BatchFirst, OtherOperandsStayWhereTheyAre) {
  EXPECT_EQ(matches("batch_first", interleaved_products()), 1U);
  EXPECT_EQ(matches("batch_first", interleaved_products(ElementType::f32)), 0U) << "no 16-bit tensors";
  EXPECT_EQ(matches("batch_first", outer_products()), 0U) << "neighbours are of one product";
  EXPECT_EQ(matches("batch_first", matmul()), 0U);
}

TEST(RoundOperand, AProductReadsARoundedCopyOfAComputedOperand) {
  const Nest nest = rule("round_operand").apply(computed_weights(" and j <= i"), {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(nest.tensor("w_rounded").type, ElementType::f16);
  EXPECT_THAT(reads_of(nest, "w_rounded"), ElementsAre("w"));
  EXPECT_TRUE(nest.statement("w_rounded").domain.is_equal(parse_set("[N, D] -> { w_rounded[i, j] : 0 <= j <= i < N }", "test")));
  EXPECT_THAT(reads_of(nest, "sum"), UnorderedElementsAre("w_rounded", "x"));
  EXPECT_THAT(reads_of(nest, "total"), ElementsAre("w")) << "no product: as it is";
  EXPECT_LT(nest.statement("w").group, nest.statement("w_rounded").group);
  EXPECT_LT(nest.statement("w_rounded").group, nest.statement("total").group);
  EXPECT_EQ(matches("round_operand", nest), 0U) << "once";
}

Nest rounded_both_ways(const std::string& part = "") {
  const Nest first = rule("round_operand").apply(weights_both_ways(part), {"sum"}).nest;
  return rule("round_operand").apply(first, {"sum_2"}).nest;
}

TEST(RoundOperand, ProductsShareARoundedCopy) {
  const Nest nest = rounded_both_ways();
  validate(nest);
  EXPECT_THAT(statement_names(nest), ElementsAre("w", "w_rounded", "init", "sum", "init_2", "sum_2", "out"));
  EXPECT_THAT(reads_of(nest, "sum_2"), UnorderedElementsAre("w_rounded", "y"));
}

TEST(ZeroTerms, ProductsShareACopyWithTheSameZeros) {
  const auto both = [](const std::string& part) {
    const Nest nest = rule("zero_terms").apply(rule("zero_terms").apply(rounded_both_ways(part), {"sum"}).nest, {"sum_2"}).nest;
    validate(nest);
    return statement_names(nest);
  };
  EXPECT_THAT(both(""),
              ElementsAre("w", "w_rounded", "w_rounded_zeros", "w_rounded_whole", "init", "sum", "init_2", "sum_2", "out"));
  EXPECT_THAT(both(" and j < i"), ::testing::SizeIs(11)) << "other terms are left out";
}

TEST(RoundOperand, OnlyComputedOperandsOfMatrixProductsAreRounded) {
  EXPECT_EQ(matches("round_operand", computed_weights()), 1U);
  EXPECT_EQ(matches("round_operand", triangular_product(true)), 0U) << "it has 16 bits";
  EXPECT_EQ(matches("round_operand", matmul()), 0U) << "nothing is computed";
  Nest nest = computed_weights();
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "w") tensor.role = TensorRole::output;
  }
  EXPECT_EQ(matches("round_operand", nest), 0U) << "a result";
}

TEST(RoundOperand, TheOtherOperandMayBeComputedInTheBitsOfAllInputs) {
  const auto nest = [](ElementType computed, ElementType other) {
    Nest result = computed_weights();
    for (Tensor& tensor : result.tensors) {
      if (tensor.name == "x") tensor.role = TensorRole::temporary, tensor.type = computed;
      if (tensor.name == "s" || tensor.name == "t") tensor.type = other;
    }
    for (Statement& statement : result.statements) {
      statement.value = statement.value.rewrite([&](const ScalarExpr& node) {
        const bool x = node.op() == ScalarOp::read && statement.reads[static_cast<std::size_t>(node.ordinal())].tensor == "x";
        const bool factor = node.op() == ScalarOp::read && statement.name == "w";
        return x        ? ScalarExpr::read(node.ordinal(), computed)
               : factor ? ScalarExpr::cast(ElementType::f32, ScalarExpr::read(node.ordinal(), other))
                        : node;
      });
    }
    return result;
  };
  EXPECT_EQ(matches("round_operand", nest(ElementType::bf16, ElementType::bf16)), 1U);
  EXPECT_EQ(matches("round_operand", nest(ElementType::f16, ElementType::bf16)), 0U) << "kernels may round to bf16 alone";
  EXPECT_EQ(matches("round_operand", nest(ElementType::f16, ElementType::f32)), 0U) << "all inputs are f32";
}

/// sums[i, d] = sum over j of w[i, j] x[j, d], where w[i, j] = sum over p of t[i, j, p], or, with `products`, of a[i, p] b[j, p].
Nest summed_weights(bool products) {
  const auto wide = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::f16)); };
  const std::string pair = "0 <= i < N and 0 <= j < N", element = "0 <= i < N and 0 <= d < D";
  NestBuilder nest("summed_weights", {{"N", 7}, {"D", 5}});
  for (const char* name : {"a", "b"}) nest.tensor(name, TensorRole::input, {"N", "9"}, ElementType::f16);
  return nest.tensor("t", TensorRole::input, {"N", "N", "9"}, ElementType::f16)
      .tensor("x", TensorRole::input, {"N", "D"}, ElementType::f16)
      .tensor("w", TensorRole::temporary, {"N", "N"})
      .tensor("sums", TensorRole::temporary, {"N", "D"})
      .tensor("out", TensorRole::output, {"N", "D"})
      .statement("w_init[i, j] : " + pair, "w[i, j]", {}, number(0))
      .statement("w[i, j, p] : " + pair + " and 0 <= p < 9", "w[i, j]",
                 products ? std::vector<std::string>{"a[i, p]", "b[j, p]"} : std::vector<std::string>{"t[i, j, p]"},
                 products ? wide(0) * wide(1) : wide(0), ReductionOp::add)
      .statement("init[i, d] : " + element, "sums[i, d]", {}, number(0))
      .statement("sum[i, d, j] : " + element + " and 0 <= j < N", "sums[i, d]", {"w[i, j]", "x[j, d]"}, read(0) * wide(1),
                 ReductionOp::add)
      .statement("out[i, d] : " + element, "out[i, d]", {"sums[i, d]"}, read(0))
      .build();
}

TEST(RoundOperand, ASumBehindNoProductIsAnOperandWhenItIsComplete) {
  ASSERT_EQ(matches("round_operand", summed_weights(false)), 1U);
  const Nest nest = rule("round_operand").apply(summed_weights(false), {"sum"}).nest;
  validate(nest);
  EXPECT_LT(nest.statement("w").group, nest.statement("w_rounded").group);
  EXPECT_LT(nest.statement("w_rounded").group, nest.statement("init").group);
  EXPECT_EQ(matches("round_operand", summed_weights(true)), 0U) << "long sums of products are not rounded";
  Nest parts = rule("split_reduction").apply(summed_weights(true), {"w", "p", "part", "3"}).nest;
  EXPECT_EQ(matches("round_operand", parts), 0U) << "nor are those of their parts";
}

TEST(SplitTerms, RowsByColumnsOfF32HaveASumEach) {
  const auto nest = [](const std::string& second) {
    const std::string pair = "0 <= i < N and 0 <= j < N";
    NestBuilder turned("turned", {{"N", 7}});
    for (const char* name : {"a", "b", "c", "d"}) turned.tensor(name, TensorRole::input, {"N", "9"});
    return turned.tensor("sums", TensorRole::temporary, {"N", "N"})
        .tensor("out", TensorRole::output, {"N", "N"})
        .statement("init[i, j] : " + pair, "sums[i, j]", {}, number(0))
        .statement("sum[i, j, e] : " + pair + " and 0 <= e < 9", "sums[i, j]", {"a[i, e]", "b[j, e]", "c[i, e]", second},
                   read(0) * read(1) - read(2) * read(3), ReductionOp::add)
        .statement("out[i, j] : " + pair, "out[i, j]", {"sums[i, j]"}, read(0))
        .build();
  };
  ASSERT_EQ(matches("split_terms", nest("d[j, e]")), 1U);
  const Nest split = rule("split_terms").apply(nest("d[j, e]"), {"sum"}).nest;
  validate(split);
  EXPECT_THAT(reads_of(split, "sum"), UnorderedElementsAre("a", "b"));
  EXPECT_THAT(reads_of(split, "out"), UnorderedElementsAre("sums", "sums_term"));
  EXPECT_EQ(matches("split_terms", nest("d[i, e]")), 0U) << "no columns";
}

TEST(CopyRows, ProductsReadACopyOfWhatTensorCopiesCannotRead) {
  Nest nest = rule("copy_rows").apply(product_of_rows(), {"w"}).nest;
  nest = rule("copy_rows").apply(nest, {"x"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("x_rows").dims, ElementsAre("b", "i", "k"));
  EXPECT_TRUE(
      nest.statement("w_rows").domain.is_equal(parse_set("[B, M] -> { w_rows[k, j] : 0 <= k < 12 and 0 <= j < 9 }", "test")));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("x_rows", "w_rows"));
  EXPECT_THAT(reads_of(nest, "out"), ElementsAre("sums", "w")) << "no product";
  EXPECT_EQ(nest.statements.at(2).name, "init") << "behind the copies";
  EXPECT_EQ(matches("copy_rows", nest), 0U) << "once";
}

TEST(CopyRows, OtherRowsStayWhereTheyAre) {
  EXPECT_EQ(matches("copy_rows", product_of_rows()), 2U);
  EXPECT_EQ(matches("copy_rows", product_of_rows(16, 9)), 1U);
  EXPECT_EQ(matches("copy_rows", product_of_rows(16, 24)), 0U) << "multiples of 16 bytes";
  EXPECT_EQ(matches("copy_rows", product_of_rows(7, 1)), 0U) << "too short";
  EXPECT_EQ(matches("copy_rows", interleaved_products()), 0U) << "of no known length";
  EXPECT_EQ(matches("copy_rows", matmul()), 0U) << "no 16-bit tensors";
  EXPECT_EQ(matches("copy_rows", fix_sizes(product_of_rows(), {{"B", 1}, {"M", 1}})), 1U) << "one row is never stepped along";
}

TEST(ZeroTerms, ATriangleBecomesASquareOfElementsAndZeros) {
  const Nest nest = rule("zero_terms").apply(triangular_product(), {"sum"}).nest;
  validate(nest);
  EXPECT_TRUE(nest.statement("w_zeros").domain.is_equal(parse_set("[N, D] -> { w_zeros[e, f] : 0 <= e < f < N }", "test")));
  EXPECT_TRUE(nest.statement("w_whole").domain.is_equal(parse_set("[N, D] -> { w_whole[e, f] : 0 <= f <= e < N }", "test")));
  EXPECT_TRUE(nest.statement("sum").domain.is_equal(
      parse_set("[N, D] -> { sum[i, d, j] : 0 <= i < N and 0 <= d < D and 0 <= j < N }", "test")));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("w_whole", "x"));
  EXPECT_EQ(matches("zero_terms", nest), 0U) << "once";
  EXPECT_THAT(rule("zero_terms").finite(triangular_product()), ElementsAre("x"));
}

TEST(ZeroTerms, DimsDoNotHaveTheNameOfATensor) {
  Nest nest = triangular_product();
  nest.tensors.push_back({"e", ElementType::f32, TensorRole::input, nest.tensor("x").shape});
  const Nest made = rule("zero_terms").apply(nest, {"sum"}).nest;
  EXPECT_NO_THROW(validate_changes(nest, made));
  EXPECT_THAT(made.statement("w_zeros").dims, ElementsAre("e_2", "e_3"));
}

TEST(KeepSums, ElementsWithoutTermsAreStored) {
  const auto product = [](const std::string& terms) {
    const std::string element = "0 <= i < M and 0 <= j < N";
    const auto half = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::f16)); };
    return NestBuilder("product", {{"M", 5}, {"N", 7}, {"K", 6}})
        .tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
        .tensor("w", TensorRole::input, {"N", "K"}, ElementType::f16)
        .tensor("out", TensorRole::output, {"M", "N"})
        .statement("init[i, j] : " + element, "out[i, j]", {}, number(0))
        .statement("sum[i, j, k] : " + element + terms, "out[i, j]", {"x[i, k]", "w[j, k]"}, half(0) * half(1), ReductionOp::add)
        .build();
  };
  for (const std::string terms : {" and 0 <= k < K", " and 0 <= k < K and k < i"}) {
    const Nest nest = product(terms), made = rule("keep_sums").apply(nest, {"sum"}).nest;
    EXPECT_NO_THROW(validate_changes(nest, made));
    const isl::set stored = domain_in(made, made.statement("sum_store")), whole = domain_in(nest, nest.statement("init"));
    EXPECT_TRUE(stored.is_equal(isl::manage(isl_set_set_tuple_name(whole.copy(), "sum_store"))));
  }
}

TEST(ZeroTerms, WhatNobodyWroteOfTheFilledOperandIsZeroInItsCopy) {
  ASSERT_EQ(matches("zero_terms", triangular_product(true)), 1U);
  const Nest nest = rule("zero_terms").apply(triangular_product(true), {"sum"}).nest;
  validate(nest);
  EXPECT_TRUE(nest.statement("w_whole").domain.is_equal(parse_set("[N, D] -> { w_whole[e, f] : 0 <= f <= e < N }", "test")));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("w_whole", "x"));
}

TEST(ZeroTerms, WholeSumsStay) {
  EXPECT_EQ(matches("zero_terms", triangular_product()), 1U);
  EXPECT_EQ(matches("zero_terms", interleaved_products()), 0U);
  EXPECT_EQ(matches("zero_terms", matmul()), 0U) << "no 16-bit tensors";
  EXPECT_EQ(matches("zero_terms", banded_product()), 0U) << "zeros would meet elements that nobody has written";
}

TEST(SkipZeros, TermsOutsideOfTheImageAreLeftOut) {
  const Nest before = strided_convolution();
  const Nest nest = rule("skip_zeros").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(reads_of(nest, "sum"), UnorderedElementsAre("x", "w"));
  EXPECT_EQ(nest.find_statement("pixel"), nullptr) << "nobody reads it any more";
  EXPECT_EQ(nest.find_statement("zero"), nullptr);
  const isl::set inside = parse_set(
      "[B, Y, Z] -> { sum[n, y, z, m, s, t, c] : 1 <= 2y + s <= 2Y and 1 <= 2z + t <= 2Z and 0 <= n < B and 0 <= y < Y and "
      "0 <= z < Z and 0 <= m < 8 and 0 <= s < 3 and 0 <= t < 3 and 0 <= c < 16 }",
      "test");
  EXPECT_TRUE(nest.statement("sum").domain.intersect_params(nest.context).is_equal(inside.intersect_params(nest.context)));
  EXPECT_THAT(rule("skip_zeros").finite(before), ElementsAre("w")) << "it met the zeros";
  EXPECT_EQ(matches("skip_zeros", nest), 0U) << "once";
}

TEST(SkipZeros, OtherSumsStay) {
  EXPECT_EQ(matches("skip_zeros", strided_convolution()), 1U);
  Nest other = strided_convolution();  // ones around the image
  for (Statement& statement : other.statements) {
    if (statement.name == "zero") statement.value = number(1);
  }
  EXPECT_EQ(matches("skip_zeros", other), 0U) << "no zeros";
  Nest later = strided_convolution();  // zeros that are written over the copy
  std::swap(later.statements.at(1), later.statements.at(2));
  std::swap(later.statements.at(1).group, later.statements.at(2).group);
  EXPECT_EQ(matches("skip_zeros", later), 0U) << "the copy is not what is left";
  Nest started = strided_convolution();
  for (Statement& statement : started.statements) {
    if (statement.name == "init") statement.value = number(-1);
  }
  EXPECT_EQ(matches("skip_zeros", started), 0U) << "-0 could be left of the sum";
  EXPECT_EQ(matches("skip_zeros", triangular_product(true)), 0U);
  EXPECT_EQ(matches("skip_zeros", matmul()), 0U);
}

TEST(RepeatProduct, SumsOfSquaresAreNotRepeated) { EXPECT_EQ(matches("repeat_product", norm_of_operand()), 0U); }

TEST(GatherRows, WindowsAreCopiedAlongTheDimsOfTheirSum) {
  const Nest before = rolled_windows();
  EXPECT_EQ(matches("gather_rows", before), 2U);
  const Nest nest = rule("gather_rows").apply(rule("gather_rows").apply(before, {"s"}).nest, {"sums"}).nest;
  validate(nest);
  EXPECT_THAT(reads_of(nest, "s"), ElementsAre("q_gathered", "k_gathered"));
  EXPECT_THAT(reads_of(nest, "sums"), ElementsAre("p", "v_gathered"));
  EXPECT_THAT(nest.statement("v_gathered").dims, ElementsAre("b", "h", "w", "j", "d")) << "what lies along memory is last";
  EXPECT_LT(nest.statement("k_gathered").group, nest.statement("s_init").group);
  EXPECT_EQ(matches("gather_rows", nest), 0U) << "once";
}

TEST(GatherRows, IndicesInsideOfOthersShareOne) {
  const Nest nest = rule("gather_rows").apply(many_indices(), {"s"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("q_gathered").dims, ElementsAre("b", "h", "w", "g", "i", "e"));
  EXPECT_EQ(nest.tensor("q_gathered").shape.size(), 5U);
  const isl::map plain = parse_map("[B, H] -> { s[b, h, w, g, i, j, e] -> q_gathered[b, h, 4w + g, i, e] }", "test");
  const Statement& sum = nest.statement("s");
  EXPECT_TRUE(sum.reads[0].relation.intersect_domain(sum.domain).is_equal(plain.intersect_domain(sum.domain)));
  EXPECT_EQ(rule("gather_rows").apply(many_indices("2", "H"), {"s"}).nest.tensor("q_gathered").shape.size(), 5U) << "(h, w), g";
  EXPECT_EQ(matches("gather_rows", many_indices("H", "B")), 0U) << "of no known extents";
}

TEST(GatherRows, OtherOperandsStay) {
  EXPECT_EQ(matches("gather_rows", product_of_rows()), 0U);
  EXPECT_EQ(matches("gather_rows", strided_convolution()), 0U) << "steps";
  const auto windows = [](const std::string& row, const std::string& extent) {
    return matches("gather_rows", window_products({{"b", "B"}, {"h", "H"}, {"w", "28"}}, row, {"B", extent, "H"}));
  };
  EXPECT_EQ(windows("b, (7w + % + 3) mod 196, h", "196"), 2U);
  EXPECT_EQ(windows("b, (w + % + 3) mod 28, h", "28"), 0U) << "windows overlap: copies would be seven times as large";
}

/// Near the end of a short line no term has the last taps; tiles read them all the same, beside zeros.
TEST(JoinShortRows, ArgumentsAreCopiedWhole) {
  Nest nest = grouped_filters();
  for (Statement& statement : nest.statements) {
    if (statement.name == "sum")
      statement.domain = statement.domain.intersect(parse_set("[N, Y, G] -> { sum[n, y, g, s, t, c] : t < Y }", "test"));
  }
  const Nest joined = rule("join_short_rows").apply(nest, {"sum"}).nest;
  EXPECT_TRUE(joined.statement("w_copy").domain.is_equal(
      parse_set("[N, Y, G] -> { w_copy[g, s, t, c] : 0 <= g < G and 0 <= s < 8 and 0 <= t < 3 and 0 <= c < 64 }", "test")));
}

TEST(JoinShortRows, FiltersInGroupsHaveOneIndex) {
  const Nest nest = rule("join_short_rows").apply(grouped_filters(), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("n", "y", "s", "t", "c"));
  EXPECT_TRUE(nest.statement("sum")
                  .domain.intersect_params(nest.context)
                  .is_equal(parse_set("[N, Y, G] -> { sum[n, y, s, t, c] : 0 <= n < N and 0 <= y < Y and 0 <= s < 8G and 0 <= t "
                                      "< 3 and 0 <= c < 64 }",
                                      "test")
                                .intersect_params(nest.context)));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("x", "w_copy"));
  EXPECT_EQ(matches("join_short_rows", nest), 0U) << "once";
  EXPECT_EQ(matches("join_rows", grouped_filters()), 0U);
}

TEST(JoinShortRows, ManyRowsAndRowsWithGapsStay) {
  EXPECT_EQ(matches("join_short_rows", grouped_filters("48")), 1U);
  EXPECT_EQ(matches("join_short_rows", grouped_filters("49")), 0U);
  EXPECT_EQ(matches("join_short_rows", grouped_filters("8", " and s <= g")), 0U);
  EXPECT_EQ(matches("join_short_rows", grouped_filters("8", " and 1 <= s")), 0U);
  EXPECT_EQ(matches("join_short_rows", product_of_rows()), 0U) << "rows of a batch are read at another index";
}

TEST(JoinRows, TwoIndicesBecomeOneOnBothSides) {
  const Nest nest = rule("join_rows").apply(outer_products(), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("g", "f", "v"));
  EXPECT_THAT(nest.statement("init").dims, ElementsAre("g", "f"));
  EXPECT_TRUE(nest.statement("sum").domain.is_equal(
      parse_set("[V, N] -> { sum[g, f, v] : 0 <= g < 3N and 0 <= f < 5N and 0 <= v < V }", "test")));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("a_copy", "b_copy"));
  EXPECT_LT(nest.statement("b_copy").group, nest.statement("init").group) << "what starts the sum stands by it";
  EXPECT_EQ(matches("join_rows", nest), 0U) << "once";
}

TEST(JoinRows, RowsWithGapsOrOfUnknownLengthStay) {
  EXPECT_EQ(matches("join_rows", outer_products()), 1U);
  EXPECT_EQ(matches("join_rows", outer_products(" and g <= i and f <= j")), 0U) << "a triangle";
  EXPECT_EQ(matches("join_rows", outer_products(" and 1 <= g and 1 <= f")), 0U) << "a gap between rows";
  EXPECT_EQ(matches("join_rows", interleaved_products()), 0U) << "no extent is known";
}

TEST(JoinResults, WhatReadsJoinedSumsRunsAlongTheirDims) {
  const Nest joined = rule("join_rows").apply(outer_products(), {"sum"}).nest;
  const Nest nest = rule("join_results").apply(joined, {"out"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("out").dims, ElementsAre("g", "f"));
  EXPECT_TRUE(nest.statement("out")
                  .write.relation.intersect_domain(nest.statement("out").domain)
                  .is_equal(parse_map(
                      "[V, N] -> { out[g, f] -> out[g // 3, f // 5, g % 3, f % 5] : 0 <= g < 3N and 0 <= f < 5N }", "test")));
  EXPECT_TRUE(nest.statement("out")
                  .reads[0]
                  .relation.intersect_domain(nest.statement("out").domain)
                  .is_equal(parse_map("[V, N] -> { out[g, f] -> sums[g, f] : 0 <= g < 3N and 0 <= f < 5N }", "test")));
  EXPECT_EQ(matches("join_results", nest), 0U) << "once";
}

TEST(JoinRows, AllIndicesOfRowsAreJoinedInOneCopyOfEachOperand) {
  const Nest joined = rule("join_rows").apply(corners_of_cells(), {"sum"}).nest;
  validate(joined);
  EXPECT_EQ(joined.statements.size(), 5U) << "a copy of each operand, the sum with its start, and the result";
  EXPECT_THAT(joined.statement("sum").dims, ElementsAre("u", "e", "v"));
  EXPECT_TRUE(joined.statement("x_copy")
                  .write.relation.intersect_domain(joined.statement("x_copy").domain)
                  .is_equal(parse_map("[R, V] -> { x_copy[v, z, y, u] -> x_copy[v, 48z + 8y + u] : 0 <= v < V and 0 <= z < 5 and "
                                      "0 <= y < 6 and 0 <= u < 8 }",
                                      "test")));
  const Nest nest = rule("join_results").apply(joined, {"out"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("out").dims, ElementsAre("u", "e"));
  EXPECT_TRUE(nest.statement("out")
                  .reads[0]
                  .relation.intersect_domain(nest.statement("out").domain)
                  .is_equal(parse_map("[R, V] -> { out[s, t] -> sums[s, t] : 0 <= s < 240 and 0 <= t < 8R }", "test")));
  EXPECT_TRUE(
      nest.statement("out")
          .write.relation.intersect_domain(nest.statement("out").domain)
          .is_equal(parse_map("[R, V] -> { out[s, t] -> out[t // 8, s // 48, (t // 4) % 2, (s // 8) % 6, (t // 2) % 2, s % 8, "
                              "t % 2] : 0 <= s < 240 and 0 <= t < 8R }",
                              "test")));
}

/// out[r, h, p, f] = sum over k of x[r, k] w[h, p, f, k]: the halves of heads, rows of a weight that lie in one piece in front of its terms.
TEST(JoinShortRows, LongerRowsInFrontShareTheirCopy) {
  const ScalarExpr product = product_of_halves();
  const auto halves = [&](const std::string& half) {
    const std::string cell = "0 <= r < R and 0 <= h < H and 0 <= p < 2 and 0 <= f < " + half;
    return NestBuilder("halves", {{"R", 8}, {"H", 4}, {"K", 16}})
        .tensor("x", TensorRole::input, {"R", "K"}, ElementType::f16)
        .tensor("w", TensorRole::input, {"H", "2", half, "K"}, ElementType::f16)
        .tensor("sums", TensorRole::temporary, {"R", "H", "2", half})
        .tensor("out", TensorRole::output, {"R", "H", "2", half})
        .statement("init[r, h, p, f] : " + cell, "sums[r, h, p, f]", {}, number(0))
        .statement("sum[r, h, p, f, k] : " + cell + " and 0 <= k < K", "sums[r, h, p, f]", {"x[r, k]", "w[h, p, f, k]"}, product,
                   ReductionOp::add)
        .statement("out[r, h, p, f] : " + cell, "out[r, h, p, f]", {"sums[r, h, p, f]"}, read(0))
        .build();
  };
  const Nest nest = rule("join_short_rows").apply(halves("48"), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("r", "f", "k")) << "96 rows of a head are no short ones";
  EXPECT_EQ(nest.statements.size(), 4U);
  EXPECT_EQ(matches("join_short_rows", halves("64")), 0U) << "tiles are full";
}

TEST(JoinResults, StatementsThatLeaveOutElementsOrReadTheirOwnStay) {
  const Nest joined = rule("join_rows").apply(outer_products(), {"sum"}).nest;
  EXPECT_EQ(matches("join_results", outer_products()), 0U) << "no sum has joined dims";
  EXPECT_EQ(matches("join_results", joined), 1U);
  const auto with = [&](const std::function<void(Statement&)>& change) {
    Nest nest = joined;
    Statement out = nest.statement("out");
    change(out);
    replace_statement(nest, out);
    return matches("join_results", nest);
  };
  const std::string cell = "[V, N] -> { out[i, j, g, f] : 0 <= i < N and 0 <= j < N and 0 <= g < 3 and 0 <= f < 5 and ";
  EXPECT_EQ(with([&](Statement& out) { out.domain = parse_set(cell + "g <= i and f <= j }", "test"); }), 0U) << "triangles";
  EXPECT_EQ(with([&](Statement& out) { out.domain = parse_set(cell + "g <= i }", "test"); }), 1U) << "columns alone";
  EXPECT_EQ(with([&](Statement& out) {
              out.reads[0].relation = parse_map("[V, N] -> { out[i, j, g, f] -> sums[g + 2i, f + 4j] }", "test");
            }),
            0U)
      << "other steps than the extents";
  EXPECT_EQ(with([&](Statement& out) { out.reads.push_back(out.write); }), 0U) << "it reads what it writes";
  EXPECT_EQ(
      with([&](Statement& out) { out.write.relation = parse_map("[V, N] -> { out[i, j, g, f] -> out[0, j, g, f] }", "test"); }),
      0U)
      << "elements are written more than once";
}

TEST(SeparateSums, EachExpertHasATemporaryOfItsOwn) {
  const Nest nest = rule("separate_sums").apply(mixed_products(), {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(nest.find_tensor("sums"), nullptr);
  EXPECT_EQ(nest.statements.size(), 3U * 2U + 2U) << "three sums with what starts them, their mixture, the result";
  for (const std::string number : {"0", "1", "2"}) {
    const Statement& sum = nest.statement("sum_" + number);
    EXPECT_THAT(sum.dims, ElementsAre("i", "j", "k"));
    EXPECT_TRUE(
        sum.domain.intersect_params(nest.context)
            .is_equal(parse_set("[M, N, K] -> { sum_" + number + "[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K }", "test")
                          .intersect_params(nest.context)));
    EXPECT_TRUE(sum.reads[1]
                    .relation.intersect_domain(sum.domain)
                    .is_equal(parse_map("[M, N, K] -> { sum_" + number + "[i, j, k] -> w[" + number + ", j, k] }", "test")
                                  .intersect_domain(sum.domain)));
    EXPECT_EQ(nest.tensor("sums_" + number).shape.size(), 2U);
    EXPECT_LT(nest.statement("init_" + number).group, sum.group);
    EXPECT_LT(sum.group, nest.statement("mix").group);
  }
  EXPECT_FALSE(nest.statement("mix").reduction);
  EXPECT_EQ(matches("separate_sums", nest), 0U) << "once";
  const Nest late = rule("separate_sums").apply(mixed_products("4", "1"), {"sum"}).nest;
  EXPECT_EQ(late.find_statement("sum_0"), nullptr) << "nobody reads it";
  EXPECT_NE(late.find_statement("sum_3"), nullptr);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Maxout: the largest of few sums of products, each with a bias that a definition between adds; `op` takes another one.
Nest largest_piece(ReductionOp op = ReductionOp::max, double from = -kInfinity) {
  const std::string element = "0 <= i < M and 0 <= j < N", each = element + " and 0 <= e < 3";
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  return samples::NestBuilder("largest_piece", {{"M", 5}, {"N", 4}, {"K", 3}})
      .tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"N", "3", "K"}, ElementType::f16)
      .tensor("bias", TensorRole::input, {"N", "3"})
      .tensor("sums", TensorRole::temporary, {"M", "N", "3"})
      .tensor("piece", TensorRole::temporary, {"M", "N", "3"})
      .tensor("most", TensorRole::temporary, {"M", "N"})
      .tensor("out", TensorRole::output, {"M", "N"})
      .statement("init[i, j, e] : " + each, "sums[i, j, e]", {}, number(0))
      .statement("sum[i, j, e, k] : " + each + " and 0 <= k < K", "sums[i, j, e]", {"x[i, k]", "w[j, e, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("piece[i, j, e] : " + each, "piece[i, j, e]", {"sums[i, j, e]", "bias[j, e]"}, read(0) + read(1))
      .statement("most_init[i, j] : " + element, "most[i, j]", {}, number(from))
      .statement("most[i, j, e] : " + each, "most[i, j]", {"piece[i, j, e]"}, read(0), op)
      .statement("out[i, j] : " + element, "out[i, j]", {"most[i, j]"}, read(0))
      .build();
}

TEST(SeparateSums, TheLargestOfFewSumsIsAValue) {
  for (const auto& [op, from] :
       {std::pair(ReductionOp::max, -kInfinity), {ReductionOp::max, 0.5}, {ReductionOp::min, kInfinity}}) {
    const Nest before = largest_piece(op, from);
    ASSERT_EQ(matches("separate_sums", before), 1U);
    const Nest nest = rule("separate_sums").apply(before, {"sum"}).nest;
    validate(nest);
    EXPECT_EQ(nest.find_tensor("sums"), nullptr);
    EXPECT_EQ(nest.find_tensor("piece"), nullptr) << "what adds the bias is a part of the largest";
    EXPECT_FALSE(nest.statement("most").reduction);
    EXPECT_EQ(samples::differences(before, nest, {{"M", 5}, {"N", 4}, {"K", 3}}, 40), 0);
  }
  EXPECT_EQ(matches("separate_sums", largest_piece(ReductionOp::mul, 1)), 0U) << "of a product nothing is known";
}

TEST(SeparateSums, WeightsOfTheSumsArePartOfTheMixture) {
  Nest nest = mixed_products();
  nest.tensors.push_back({"share", ElementType::f32, TensorRole::temporary, nest.tensor("gate").shape, {}});
  Statement share{"share",
                  {"i", "e"},
                  parse_set("[M, N, K] -> { share[i, e] : 0 <= i < M and 0 <= e < 3 }", "test"),
                  {"share", parse_map("[M, N, K] -> { share[i, e] -> share[i, e] }", "test")},
                  {{"gate", parse_map("[M, N, K] -> { share[i, e] -> gate[i, e] }", "test")}},
                  {},
                  read(0) * number(0.5),
                  std::nullopt,
                  0};
  insert_statement(nest, 0, share);
  Statement mix = nest.statement("mix");
  mix.reads[1] = {"share", mix.reads[1].relation.set_range_tuple("share")};
  replace_statement(nest, mix);
  validate(nest);
  const Nest result = rule("separate_sums").apply(nest, {"sum"}).nest;
  validate(result);
  EXPECT_EQ(result.find_tensor("share"), nullptr) << "no tensor of few values for each row stands between";
  EXPECT_EQ(differences(nest, result, {{"M", 3}, {"N", 2}, {"K", 2}}, 40), 0);
}

/// Pairs of sums that are turned by an angle, relative to how long all of them are together.
Nest turned_pairs(const std::string& parts = "2", bool first_outside = true) {
  const std::string row = "0 <= i < M", each = row + " and 0 <= j < N and 0 <= e < " + parts;
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  const ScalarExpr first = read(0) * read(2), second = read(1) * read(2);
  return samples::NestBuilder("turned_pairs", {{"M", 5}, {"N", 4}, {"K", 3}})
      .tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
      .tensor("w", TensorRole::input, {parts, "N", "K"}, ElementType::f16)
      .tensor("sums", TensorRole::temporary, {"M", parts, "N"})
      .tensor("line", TensorRole::temporary, {"M", parts, "N"})
      .tensor("long", TensorRole::temporary, {"M"})
      .tensor("out", TensorRole::output, {"M", "2", "N"})
      .statement("init[i, e, j] : " + each, "sums[i, e, j]", {}, number(0))
      .statement("sum[i, e, j, k] : " + each + " and 0 <= k < K", "sums[i, e, j]", {"x[i, k]", "w[e, j, k]"}, wide(0) * wide(1),
                 ReductionOp::add)
      .statement("line[i, e, j] : " + each, "line[i, e, j]", {"sums[i, e, j]"}, read(0))
      .statement("long_init[i] : " + row, "long[i]", {}, number(0))
      .statement(std::string(first_outside ? "long[i, e, j]" : "long[i, j, e]") + " : " + each, "long[i]", {"line[i, e, j]"},
                 read(0) * read(0), ReductionOp::add)
      .statement(
          "out[i, e, j] : " + row + " and 0 <= j < N and 0 <= e < 2", "out[i, e, j]",
          {"line[i, 0, j]", "line[i, 1, j]", "long[i]"},
          ScalarExpr::make(ScalarOp::select,
                           {ScalarExpr::make(ScalarOp::eq, {ScalarExpr::index(0), ScalarExpr::constant(0, ElementType::i32)}),
                            first - second, first + second}),
          std::nullopt, {"e"})
      .build();
}

TEST(SeparateSums, PartsThatMeetHaveTemporariesAndStatementsOfTheirOwn) {
  const Nest before = turned_pairs();
  ASSERT_EQ(matches("separate_sums", before), 1U);
  const Nest nest = rule("separate_sums").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(samples::statement_names(nest), ElementsAre("init_0", "init_1", "sum_0", "sum_1", "line_0_2", "line_1_2",
                                                          "long_init", "long_0", "long_1", "out_0", "out_1"));
  for (const char* part : {"0", "1"}) {
    EXPECT_THAT(nest.statement(std::string("long_") + part).dims, ElementsAre("i", "j"));
    EXPECT_NE(nest.statement(std::string("out_") + part).value.op(), ScalarOp::select) << "which part it is is known";
    EXPECT_TRUE(nest.statement(std::string("out_") + part).indices.empty());
  }
  EXPECT_EQ(nest.find_tensor("sums"), nullptr);
  EXPECT_EQ(matches("separate_sums", nest), 0U) << "once";
  EXPECT_EQ(samples::differences(before, nest, {{"M", 5}, {"N", 4}, {"K", 3}}, 40), 0);
  EXPECT_EQ(matches("separate_sums", turned_pairs("5")), 0U) << "too many";
  EXPECT_EQ(matches("separate_sums", turned_pairs("2", false)), 0U) << "it would be added up in another order";
}

TEST(SeparateSums, OtherSumsStayTogether) {
  EXPECT_EQ(matches("separate_sums", mixed_products()), 1U);
  EXPECT_EQ(matches("separate_sums", mixed_products("4")), 1U);
  EXPECT_EQ(matches("separate_sums", mixed_products("5")), 0U) << "too many";
  EXPECT_EQ(matches("separate_sums", mixed_products("E")), 0U) << "nobody knows how many";
  EXPECT_EQ(matches("separate_sums", mixed_products("1")), 0U) << "one alone";
  EXPECT_EQ(matches("separate_sums", mixed_products("3", "0", ElementType::f32)), 0U) << "no 16-bit tensors";
  const auto with = [&](const std::string& name, const std::function<void(Statement&)>& change) {
    Nest nest = mixed_products();
    Statement statement = nest.statement(name);
    change(statement);
    replace_statement(nest, statement);
    return matches("separate_sums", nest);
  };
  const auto another = [](Statement& out) {
    out.reads.push_back({"sums", parse_map("[M, N, K] -> { out[i, j] -> sums[i, 0, j] }", "test")});
    out.value = ScalarExpr::cast(ElementType::f16, read(0) + read(1));
  };
  EXPECT_EQ(with("out", another), 0U) << "another one reads them, too";
  EXPECT_EQ(with("mix", [](Statement& mix) { mix.reduction = ReductionOp::mul; }), 0U) << "a product";
  const auto one = [](Statement& mix) {
    mix.reads[0].relation = parse_map("[M, N, K] -> { mix[i, j, e] -> sums[i, 0, j] }", "test");
  };
  EXPECT_EQ(with("mix", one), 0U) << "one expert is all that is mixed";
  const auto diagonal = [](Statement& mix) {
    mix.reads[0].relation = parse_map("[M, N, K] -> { mix[i, j, e] -> sums[i, j, e] }", "test");
  };
  EXPECT_EQ(with("mix", diagonal), 1U) << "columns are mixed, which are few numbers as well";
}

TEST(JoinSums, SumsThatAreAddedBecomeOneOverSharedCopies) {
  const Nest nest = rule("join_sums").apply(recurrent_gates(), {}).nest;
  validate(nest);
  EXPECT_THAT(reads_of(nest, "sv0"), ElementsAre("x_joined", "v_joined"));
  EXPECT_THAT(reads_of(nest, "sv1"), ElementsAre("x_joined", "v_joined"));
  EXPECT_TRUE(nest.statement("sv1").domain.is_equal(
      parse_set("[M, N, K, P] -> { sv1[i, j, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K + P }", "test")));
  EXPECT_TRUE(
      nest.statement("x_joined_2")
          .write.relation.intersect_domain(nest.statement("x_joined_2").domain)
          .is_equal(parse_map("[M, N, K, P] -> { x_joined_2[i, p] -> x_joined[i, p + K] : 0 <= i < M and 0 <= p < P }", "test")));
  EXPECT_EQ(nest.find_statement("su0"), nullptr);
  EXPECT_EQ(nest.find_tensor("su1"), nullptr);
  EXPECT_EQ(nest.statement("out").reads.size(), 2U);
  EXPECT_EQ(nest.statements.size(), 4U + 4U + 1U) << "four copies, two sums with what starts them, one result";
  EXPECT_EQ(nest.statement("sv1_init").group, nest.statement("sv0").group + 1) << "sums of the same copies stand together";
  EXPECT_EQ(matches("join_sums", nest), 0U) << "once";
}

TEST(JoinSums, OperandsThatAreComputedAreCopiedBehindThat) {
  const Nest nest = rule("join_sums").apply(recurrent_gates(true), {}).nest;
  validate(nest);
  EXPECT_LT(nest.statement("state").group, nest.statement("x_joined").group);
  EXPECT_LT(nest.statement("x_joined_2").group, nest.statement("sv0").group);
}

TEST(JoinSums, OtherSumsStay) {
  EXPECT_EQ(matches("join_sums", recurrent_gates()), 1U);
  EXPECT_EQ(matches("join_sums", recurrent_gates(false, 1)), 0U) << "each starts from 1";
  const auto with = [&](const std::string& name, const std::function<void(Statement&)>& change, const Nest& before) {
    Nest nest = before;
    Statement statement = nest.statement(name);
    change(statement);
    replace_statement(nest, statement);
    return nest;
  };
  const auto value = [](const ScalarExpr& value) {
    return [=](Statement& out) { out.value = ScalarExpr::cast(ElementType::f16, value); };
  };
  const auto joined = [&](const Nest& nest) {
    return matches("join_sums", nest) == 0 ? std::vector<std::string>{} : reads_of(rule("join_sums").apply(nest, {}).nest, "out");
  };
  const Nest gates = recurrent_gates();
  EXPECT_THAT(joined(with("out", value((read(0) + read(1)) * read(0)), gates)), IsEmpty()) << "one is read alone, too";
  EXPECT_THAT(joined(with("out", value((read(0) + read(1)) * read(2) * read(3)), gates)), ElementsAre("sv0", "sv1", "su1"));
  EXPECT_THAT(joined(with("out", value((read(0) - read(1)) * (read(2) - read(3))), gates)), IsEmpty()) << "differences";
  const auto turned = [](Statement& out) {
    out.reads[1].relation = parse_map("[M, N, K, P] -> { out[i, j] -> su0[j, i] }", "test");
  };
  EXPECT_THAT(joined(with("out", turned, with("out", value(read(0) + read(1)), gates))), IsEmpty()) << "elements at other places";
  const auto terms = [](const std::string& domain) {
    return [=](Statement& sum) {
      sum.domain = parse_set("[M, N, K, P] -> { su0[i, j, p] : 0 <= i < M and " + domain + " }", "test");
    };
  };
  const Nest one = with("out", value(read(0) + read(1)), gates);
  EXPECT_THAT(joined(one), ElementsAre("sv0"));
  EXPECT_THAT(joined(with("su0", terms("0 <= j < N and 0 <= p < P and p <= i"), one)), IsEmpty()) << "terms of a triangle";
  EXPECT_THAT(joined(with("su0", terms("0 <= j < N and 0 <= p < P - 1"), one)), IsEmpty()) << "none where P is 1";
  EXPECT_THAT(joined(with("su0", terms("0 <= j < N and 0 <= p < P and 2 p != P"), one)), IsEmpty()) << "a term is left out";
  EXPECT_THAT(joined(with("su0", terms("0 <= j < N - 1 and 0 <= p < P"), one)), IsEmpty()) << "a column is left out";
  const auto read_at = [](std::size_t operand, const std::string& at) {
    return [=](Statement& sum) {
      sum.reads[operand].relation = parse_map("[M, N, K, P] -> { su0[i, j, p] -> " + at + " }", "test");
    };
  };
  EXPECT_THAT(joined(with("su0", read_at(0, "hidden[i, P - 1 - p]"), one)), IsEmpty()) << "terms backwards";
  EXPECT_THAT(joined(with("su0", read_at(0, "hidden[0, p]"), one)), IsEmpty()) << "other rows";
  EXPECT_THAT(joined(with("su0", read_at(1, "u[1, j, p]"), one)), IsEmpty()) << "another gate's columns";
}

TEST(JoinSums, SumsOfFewerDimsStay) {
  const auto gates = [](const std::string& second, const std::string& operand) {
    const std::string cell = "0 <= i < M and 0 <= j < N";
    return NestBuilder("gates", {{"M", 5}, {"N", 4}, {"K", 3}})
        .tensor("x", TensorRole::input, {"M", "K"}, ElementType::f16)
        .tensor("v", TensorRole::input, {"N", "K"}, ElementType::f16)
        .tensor("w", TensorRole::input, {"K"}, ElementType::f16)
        .tensor("s", TensorRole::temporary, {"M", "N"})
        .tensor("t", TensorRole::temporary, {second == "i" ? "M" : "N"})
        .tensor("out", TensorRole::output, {"M", "N"})
        .statement("s_init[i, j] : " + cell, "s[i, j]", {}, number(0))
        .statement("s[i, j, k] : " + cell + " and 0 <= k < K", "s[i, j]", {"x[i, k]", "v[j, k]"}, product_of_halves(),
                   ReductionOp::add)
        .statement(second == "i" ? "t_init[i] : 0 <= i < M" : "t_init[j] : 0 <= j < N", "t[" + second + "]", {}, number(0))
        .statement((second == "i" ? "t[i, k] : 0 <= i < M" : "t[j, k] : 0 <= j < N") + std::string(" and 0 <= k < K"),
                   "t[" + second + "]", {operand, "w[k]"}, product_of_halves(), ReductionOp::add)
        .statement("out[i, j] : " + cell, "out[i, j]", {"s[i, j]", "t[" + second + "]"}, read(0) + read(1))
        .build();
  };
  EXPECT_EQ(matches("join_sums", gates("i", "x[i, k]")), 0U);
  EXPECT_EQ(matches("join_sums", gates("j", "v[j, k]")), 0U);
}

TEST(NarrowCopies, ValuesAndZerosStayIn16Bits) {
  const Nest nest = rule("narrow_copies").apply(strided_convolution(), {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(nest.tensor("pixel").type, ElementType::f16);
  EXPECT_EQ(nest.statement("pixel").value.op(), ScalarOp::read) << "a copy";
  EXPECT_EQ(nest.statement("zero").value.type(), ElementType::f16);
  EXPECT_EQ(matches("narrow_copies", nest), 0U) << "once";
}

TEST(NarrowCopies, OtherValuesStayInF32) {
  EXPECT_EQ(matches("narrow_copies", strided_convolution()), 1U);
  Nest nest = strided_convolution();
  Statement zero = nest.statement("zero");
  zero.value = number(0.1);
  replace_statement(nest, zero);
  EXPECT_EQ(matches("narrow_copies", nest), 0U) << "0.1 would be rounded";
  EXPECT_EQ(matches("narrow_copies", patches()), 0U) << "16 bits already";
  EXPECT_EQ(matches("narrow_copies", norm_of_operand()), 0U);
}

TEST(SkipNeutral, WindowsReadTheImageItself) {
  for (const ReductionOp op : {ReductionOp::add, ReductionOp::max, ReductionOp::min}) {
    const Nest nest = rule("skip_neutral").apply(padded_windows(op), {"all"}).nest;
    validate(nest);
    EXPECT_THAT(reads_of(nest, "all"), ElementsAre("x"));
    EXPECT_EQ(nest.find_tensor("padded"), nullptr);
    EXPECT_TRUE(domain_in(nest, nest.statement("all"))
                    .is_equal(parse_set("[B, Y, C] -> { all[n, y, c, s] : 0 <= n < B and 0 <= y < Y and 0 <= c < C and 0 <= s < "
                                        "3 and 0 <= y + s - 1 < Y }",
                                        "test")));
    EXPECT_EQ(matches("skip_neutral", nest), 0U) << "once";
  }
  const Nest weighted = padded_windows(ReductionOp::add, true);
  EXPECT_THAT(reads_of(rule("skip_neutral").apply(weighted, {"all"}).nest, "all"), UnorderedElementsAre("x", "w"));
  EXPECT_THAT(rule("skip_neutral").finite(weighted), ElementsAre("w")) << "0 times infinity";
  EXPECT_THAT(rule("skip_neutral").finite(padded_windows(ReductionOp::max)), IsEmpty());
}

TEST(SkipNeutral, OtherConstantsAndOtherReadersKeepTheirTerms) {
  EXPECT_EQ(matches("skip_neutral", padded_windows(ReductionOp::mul)), 0U);
  EXPECT_EQ(matches("skip_neutral", padded_windows(ReductionOp::max, true)), 0U) << "-inf times a weight is not -inf";
  const auto changed = [](const std::string& name, const ScalarExpr& value) {
    Nest nest = padded_windows(ReductionOp::add);
    Statement statement = nest.statement(name);
    statement.value = value;
    replace_statement(nest, statement);
    return nest;
  };
  EXPECT_EQ(matches("skip_neutral", changed("nothing", number(1))), 0U);
  EXPECT_EQ(matches("skip_neutral", changed("init", number(1))), 0U) << "-0 and 0 would differ from a start of -0";
  EXPECT_EQ(matches("skip_neutral", changed("all", read(0) * read(0))), 0U) << "squares";
  Nest shared = padded_windows(ReductionOp::add);
  Statement out = shared.statement("out");
  const int ordinal = add_read(out, {"padded", parse_map("[B, Y, C] -> { out[n, y, c] -> padded[n, y, c, 0] }", "test")});
  out.value = ScalarExpr::cast(ElementType::f16, read(0) + read(ordinal));
  replace_statement(shared, out);
  EXPECT_EQ(matches("skip_neutral", shared), 0U) << "another reader";
}

/// sum[f, c, t] += g[n, f, z] x[n, c, z + `step` t] for so many channels.
Nest gradient_of_taps(int step, const std::string& channels = "C") {
  const std::string cell = "0 <= f < F and 0 <= c < " + channels + " and 0 <= t < 3";
  return NestBuilder("gradient_of_taps", {{"B", 4}, {"C", 40}, {"F", 24}, {"Z", 32}})
      .tensor("g", TensorRole::input, {"B", "F", "Z"}, ElementType::f16)
      .tensor("x", TensorRole::input, {"B", channels, "Z + 16"}, ElementType::f16)
      .tensor("sum", TensorRole::output, {"F", channels, "3"})
      .statement("init[f, c, t] : " + cell, "sum[f, c, t]", {}, number(0))
      .statement("sum[f, c, t, n, z] : " + cell + " and 0 <= n < B and 0 <= z < Z", "sum[f, c, t]",
                 {"g[n, f, z]", fmt::format("x[n, c, z + {} t]", step)},
                 ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) *
                     ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)),
                 ReductionOp::add)
      .build();
}

TEST(ColumnsLast, WhatTapsShiftIsCopiedWithChannelsLast) {
  const Nest nest = rule("columns_last").apply(gradient_of_taps(4), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("g", "x_copy"));
  const isl::set points = domain_in(nest, nest.statement("sum"));
  EXPECT_TRUE(nest.statement("sum").reads[1].relation.intersect_domain(points).is_equal(
      parse_map("[B, C, F, Z] -> { sum[f, c, t, n, z] -> x_copy[n, z + 4 t, c] }", "test").intersect_domain(points)));
  const isl::set copied = domain_in(nest, nest.statement("x_copy"));
  EXPECT_TRUE(nest.statement("x_copy").reads[0].relation.intersect_domain(copied).is_equal(
      parse_map("[B, C, F, Z] -> { x_copy[n, e, c] -> x[n, c, e] }", "test").intersect_domain(copied)));
  EXPECT_EQ(matches("columns_last", nest), 0U) << "once";
}

TEST(ColumnsLast, OperandsThatStartAtMultiplesOf16BytesStay) {
  for (const int step : {1, 2, 4, 12}) EXPECT_EQ(matches("columns_last", gradient_of_taps(step)), 1U) << step;
  for (const int step : {0, 8, 16}) EXPECT_EQ(matches("columns_last", gradient_of_taps(step)), 0U) << step;
  EXPECT_EQ(matches("columns_last", gradient_of_taps(1, "15")), 0U) << "few columns";
  EXPECT_EQ(matches("columns_last", channels_first()), 0U) << "taps are terms";
  EXPECT_EQ(matches("columns_last", matmul()), 0U) << "no 16-bit tensors";
}

TEST(TermsLast, ChannelsBecomeNeighbouringTerms) {
  const Nest nest = rule("terms_last").apply(channels_first(), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("n", "f", "y", "z", "s", "t", "k"));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("x_copy", "w_copy"));
  const isl::set points = domain_in(nest, nest.statement("sum"));
  EXPECT_TRUE(nest.statement("sum").reads[0].relation.intersect_domain(points).is_equal(
      parse_map("[B, C, F, Y] -> { sum[n, f, y, z, s, t, k] -> x_copy[n, y + s, z + t, k] }", "test").intersect_domain(points)));
  EXPECT_THAT(reads_of(nest, "x_copy"), ElementsAre("x"));
  const isl::set copied = domain_in(nest, nest.statement("w_copy"));
  EXPECT_TRUE(nest.statement("w_copy").reads[0].relation.intersect_domain(copied).is_equal(
      parse_map("[B, C, F, Y] -> { w_copy[f, s, t, k] -> w[f, k, s, t] }", "test").intersect_domain(copied)));
  EXPECT_EQ(matches("terms_last", nest), 0U) << "once";
}

TEST(TermsLast, ColumnsAreWhatNoStridesLieAlong) {
  const auto follows = [](const Nest& nest, unsigned dim) {
    return isl_pw_aff_involves_dims(functions_of(nest.statement("sum").write.relation).back().get(), isl_dim_in, dim, 1) ==
           isl_bool_true;
  };
  const Nest plain = rule("terms_last").apply(channels_first(1), {"sum"}).nest;
  EXPECT_TRUE(follows(plain, 3)) << "places of a row";
  const Nest strided = rule("terms_last").apply(channels_first(2), {"sum"}).nest;
  validate(strided);
  EXPECT_TRUE(follows(strided, 1)) << "filters";
  EXPECT_EQ(strided.tensor("out").shape.size(), 4U);
}

/// Of a computed image as well: it gets the order of a copy itself, and parts of it, if there will be some, have it.
TEST(TermsLast, AComputedImageOfF32GetsSuchAnOrder) {
  const Nest before = rule("materialize_factor").apply(masked_images(), {"sum"}).nest;
  EXPECT_EQ(matches("bf16x3", before), 0U) << "the innermost terms are three";
  const Nest nest = rule("terms_last").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("n", "f", "y", "z", "s", "t", "k"));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("sums_factor", "w_copy"));
  EXPECT_EQ(nest.tensor("sums_factor").type, ElementType::f32);
  EXPECT_EQ(matches("bf16x3", nest), 1U);
}

TEST(TermsLast, OnlySumsOverSeveralDimsOf16BitsHaveAnOrder) {
  EXPECT_EQ(matches("terms_last", channels_first()), 1U);
  EXPECT_EQ(matches("terms_last", channels_last()), 0U) << "as it should be";
  EXPECT_EQ(matches("terms_last", patches()), 0U) << "three colours";
  EXPECT_EQ(matches("terms_last", interleaved_products()), 0U) << "one dim of terms";
  EXPECT_EQ(matches("terms_last", matmul()), 0U) << "no 16-bit tensors";
}

TEST(GatherTerms, ATemporaryGetsItsTermsInnermost) {
  const Nest narrow = rule("narrow_copies").apply(strided_convolution(), {"sum"}).nest;
  const Nest nest = rule("gather_terms").apply(narrow, {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("pixel").dims, ElementsAre("n", "y", "z", "s", "t", "c"));
  EXPECT_THAT(reads_of(nest, "pixel"), ElementsAre("x"));
  EXPECT_EQ(nest.statement("pixel").write.tensor, "pixel_terms");
  EXPECT_EQ(nest.statement("zero").write.tensor, "pixel_terms");
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("pixel_terms", "w_terms"));
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("n", "y", "z", "m", "t"));
  EXPECT_EQ(nest.find_tensor("pixel"), nullptr);
  EXPECT_EQ(nest.statements.size(), narrow.statements.size() + 1) << "filters are copied; 144 terms need no zeros";
  EXPECT_EQ(matches("gather_terms", nest), 0U) << "once";
}

TEST(GatherTerms, ShortRunsGetOneIndexAndZeros) {
  const Nest nest = rule("gather_terms").apply(patches(), {"sum"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("sum").dims, ElementsAre("n", "y", "z", "o", "t"));
  EXPECT_THAT(reads_of(nest, "sum"), ElementsAre("x_terms", "w_terms"));
  const isl::set copied = domain_in(nest, nest.statement("w_terms"));
  EXPECT_THAT(nest.statement("w_terms").dims, ElementsAre("o", "t")) << "14 elements are no whole vectors";
  EXPECT_TRUE(nest.statement("w_terms").reads[0].relation.intersect_domain(copied).is_equal(
      parse_map("[B, Y, N] -> { w_terms[o, t] -> w[o, c, p, q] : t = 196c + 14p + q and 0 <= p < 14 and 0 <= q < 14 }", "test")
          .intersect_domain(copied)));
  EXPECT_TRUE(nest.statement("x_terms_zeros")
                  .domain.is_equal(parse_set(
                      "[B, Y, N] -> { x_terms_zeros[n, y, z, t] : 0 <= n < B and 0 <= y < Y and 0 <= z < Y and 588 <= t < 592 }",
                      "test")));
  EXPECT_EQ(matches("gather_terms", nest), 0U) << "once";
}

TEST(GatherTerms, RunsWithoutStridesStay) {
  EXPECT_EQ(matches("gather_terms", patches()), 1U);
  EXPECT_EQ(matches("gather_terms", patches(16)), 1U) << "strides of 16";
  EXPECT_EQ(matches("gather_terms", patches(14, 1)), 0U) << "zeros are for sums that start from 0";
  EXPECT_EQ(matches("gather_terms", strided_convolution()), 0U) << "f32";
  EXPECT_EQ(matches("gather_terms", outer_products()), 0U) << "one dim of terms";
  EXPECT_EQ(matches("gather_terms", interleaved_products()), 0U) << "no known extent";
  EXPECT_EQ(matches("gather_terms", matmul()), 0U) << "no 16-bit tensors";
}

TEST(RepeatProduct, SharedScoresAreComputedForEachHead) {
  const Nest nest = rule("repeat_product").apply(shared_scores(), {"weight"}).nest;
  validate(nest);
  EXPECT_THAT(nest.statement("score").dims, ElementsAre("b", "h", "i", "j"));
  EXPECT_THAT(nest.statement("dot").dims, ElementsAre("b", "h", "i", "j", "n"));
  EXPECT_THAT(nest.statement("dot_init").dims, ElementsAre("b", "h", "i", "j"));
  EXPECT_TRUE(nest.statement("dot").domain.is_equal(parse_set(
      "[B, H, N] -> { dot[b, h, i, j, n] : 0 <= b < B and 0 <= h < H and 0 <= i < N and 0 <= j <= i and 0 <= n < 4 }", "test")));
  EXPECT_EQ(nest.tensor("dot").shape.size(), 4U);
  EXPECT_EQ(matches("repeat_product", nest), 0U) << "once";
}

TEST(RepeatProduct, WhatOthersReadIsComputedOnce) {
  EXPECT_EQ(matches("repeat_product", shared_scores()), 1U);
  EXPECT_EQ(matches("repeat_product", shared_scores(true)), 0U) << "a result is made of the scores, too";
  EXPECT_EQ(matches("repeat_product", matmul()), 0U);
}

TEST(RepeatProduct, WhatIsAddedToAProductOfItsOwnIsComputedOnce) {
  const auto repeats = [](bool own) {
    Nest nest = shared_scores();
    const std::string cell = "[B, H, N] -> { ", bounds = "0 <= b < B and 0 <= h < H and 0 <= i < N and 0 <= j <= i";
    Tensor each = nest.tensor("weight");
    each.name = "each";
    each.type = ElementType::f32;
    nest.tensors.push_back(each);
    Statement init = nest.statement("dot_init"), sum = nest.statement("dot"), weight = nest.statement("weight");
    for (Statement* statement : {&init, &sum}) {
      const std::string name = statement == &init ? "each_init" : "each", n = statement == &init ? "" : ", n";
      const std::string at = name + "[b, h, i, j" + n + "]", within = statement == &init ? "" : " and 0 <= n < 4";
      statement->name = name;
      statement->dims = {"b", "h", "i", "j"};
      if (statement == &sum) statement->dims.emplace_back("n");
      statement->domain = parse_set(cell + at + " : " + bounds + within + " }", "test");
      statement->write = {"each", parse_map(cell + at + " -> each[b, h, i, j] }", "test")};
      if (statement == &sum) {
        statement->reads = {{"q", parse_map(cell + at + " -> q[b, i, n] }", "test")},
                            {own ? "v" : "q", parse_map(cell + at + (own ? " -> v[b, j, h, n] }" : " -> q[b, i, n] }"), "test")}};
      }
      insert_statement(nest, group_begin(nest, "weight"), *statement);
    }
    weight.reads[1] = {"each", parse_map(cell + "weight[b, h, i, j] -> each[b, h, i, j] }", "test")};
    weight.group = nest.statement("weight").group;
    replace_statement(nest, weight);
    return matches("repeat_product", nest);
  };
  EXPECT_EQ(repeats(false), 1U) << "sums of squares are no product of its own";
  EXPECT_EQ(repeats(true), 0U);
}

TEST(ProductAgain, WhatStatisticsReadIsComputedTwice) {
  for (const bool named : {false, true}) {
    const Nest nest = rule("product_again").apply(returned_weights(named), {"out"}).nest;
    validate(nest);
    std::vector<std::string> wanted{"dot_init", "dot", "score", "top_init", "top"};
    if (named) wanted.emplace_back("power");
    for (const char* name : {"total_init", "total", "dot_init_again", "dot_again", "score_again"}) wanted.emplace_back(name);
    if (named) wanted.emplace_back("power_again");
    wanted.emplace_back("out");
    EXPECT_EQ(statement_names(nest), wanted);
    EXPECT_THAT(reads_of(nest, "dot_again"), ElementsAre("a", "b"));
    EXPECT_THAT(reads_of(nest, "score_again"), ElementsAre("dot_again"));
    EXPECT_EQ(reads_of(nest, "out").front(), named ? "power_again" : "score_again");
    EXPECT_THAT(reads_of(nest, "top"), ElementsAre("score"));
    EXPECT_EQ(matches("product_again", nest), 0U) << "once";
  }
}

/// A result before the statistic that others need: what it reads cannot be computed again in front of it.
TEST(ProductAgain, NothingIsComputedBeforeWhatItReads) {
  const std::string cell = "0 <= i < 5 and 0 <= j < 6", row = "0 <= i < 5";
  NestBuilder builder("early", {{"K", 4}});
  builder.tensor("a", TensorRole::input, {"5", "K"}, ElementType::f16)
      .tensor("b", TensorRole::input, {"6", "K"}, ElementType::f16);
  for (const char* name : {"dot", "first", "late"}) builder.tensor(name, TensorRole::temporary, {"5", "6"});
  for (const char* name : {"sum", "inverse"}) builder.tensor(name, TensorRole::temporary, {"5"});
  for (const char* name : {"out", "other"}) builder.tensor(name, TensorRole::output, {"5", "6"});
  const Nest nest = builder.statement("dot_init[i, j] : " + cell, "dot[i, j]", {}, number(0))
                        .statement("dot[i, j, k] : " + cell + " and 0 <= k < K", "dot[i, j]", {"a[i, k]", "b[j, k]"},
                                   product_of_halves(), ReductionOp::add)
                        .statement("sum_init[i] : " + row, "sum[i]", {}, number(1))
                        .statement("sum[i, j] : " + cell, "sum[i]", {"dot[i, j]"}, read(0) * read(0), ReductionOp::add)
                        .statement("first[i, j] : " + cell, "first[i, j]", {"dot[i, j]", "sum[i]"}, read(0) - read(1))
                        .statement("inverse[i] : " + row, "inverse[i]", {"sum[i]"}, number(1) / read(0))
                        .statement("late[i, j] : " + cell, "late[i, j]", {"dot[i, j]", "inverse[i]"}, read(0) * read(1))
                        .statement("other[i, j] : " + cell, "other[i, j]", {"late[i, j]"}, read(0) + number(1))
                        .statement("out[i, j] : " + cell, "out[i, j]", {"first[i, j]", "late[i, j]"}, read(0) * read(1))
                        .build();
  EXPECT_NO_THROW(rule("product_again").apply(nest, {"other"}));
  EXPECT_THROW(rule("product_again").apply(nest, {"out"}), UserError);
}

TEST(ProductAgain, OthersAreComputedOnce) {
  EXPECT_EQ(matches("product_again", returned_weights()), 1U);
  EXPECT_EQ(matches("product_again", shared_scores()), 0U) << "the result is made of another sum";
  EXPECT_EQ(matches("product_again", shared_scores(true)), 0U) << "no reduction reads the scores";
  EXPECT_EQ(matches("product_again", matmul()), 0U);
}

TEST(SliceProduct, WhatIsNeededFirstIsMadeWithoutTheRest) {
  const Nest nest = rule("slice_product").apply(forgetting_scores(), {"forgotten"}).nest;
  validate(nest);
  for (const char* name : {"dot_init", "raw"}) EXPECT_THAT(nest.statement(name).dims, ElementsAre("i", "j")) << name;
  EXPECT_THAT(nest.statement("dot").dims, ElementsAre("i", "j", "e"));
  EXPECT_EQ(nest.tensor("raw").shape.size(), 2U);
  EXPECT_EQ(nest.tensor("dot").shape.size(), 2U);
  EXPECT_TRUE(
      nest.statement("dot")
          .reads[0]
          .relation.intersect_domain(domain_in(nest, nest.statement("dot")))
          .is_equal(parse_map("[H, N] -> { dot[i, j, e] -> q[0, i, e] : 0 <= i < N and 0 <= j <= i and 0 <= e < 64 }", "test")
                        .intersect_params(nest.context)));
  EXPECT_THAT(reads_of(nest, "score"), ElementsAre("raw_again", "forgotten"));
  EXPECT_THAT(nest.statement("dot_again").dims, ElementsAre("h", "i", "j", "e"));
  EXPECT_GT(nest.statement("dot_init_again").group, nest.statement("forgotten").group);
  EXPECT_EQ(matches("slice_product", nest), 0U) << "once";
}

TEST(SliceProduct, OtherSlicesAndWholesBeforeStay) {
  EXPECT_EQ(matches("slice_product", forgetting_scores()), 1U);
  EXPECT_EQ(matches("slice_product", forgetting_scores(true)), 0U) << "two slices";
  const auto with = [](const std::string& name, const std::function<void(Statement&)>& change) {
    Nest nest = forgetting_scores();
    Statement statement = nest.statement(name);
    change(statement);
    replace_statement(nest, statement);
    return matches("slice_product", nest);
  };
  EXPECT_EQ(
      with("forgotten",
           [](Statement& s) { s.reads[0].relation = parse_map("[H, N] -> { forgotten[i, j, l] -> raw[i, l, j] }", "test"); }),
      0U)
      << "each row reads another head's scores";
  EXPECT_EQ(with("top", [](Statement& s) { s.reads.push_back({"dot", s.reads[0].relation.set_range_tuple("dot")}); }), 0U)
      << "others read the sum, too";
  EXPECT_EQ(with("forgotten", [](Statement& s) { s.reduction.reset(); }), 0U) << "elements by themselves need no sum of others";
  EXPECT_EQ(with("raw", [](Statement& s) { s.group = 1; }), 0U) << "it shares its loops";
  EXPECT_EQ(matches("slice_product", matmul()), 0U);
}

TEST(ProductAcross, ReductionsDownColumnsHaveAProductOfTheirOwn) {
  for (const bool named : {false, true}) {
    const Nest nest = rule("product_across").apply(crossed_rows(named), {"dot"}).nest;
    validate(nest);
    std::vector<std::string> wanted{"dot_init",   "dot",     "s",    "top_init",  "top",
                                    "total_init", "total",   "out",  "down_init", "dot_init_again",
                                    "dot_again",  "s_again", "down", "sums_init"};
    if (named) wanted.emplace_back("power");
    for (const char* name : {"sums", "across"}) wanted.emplace_back(name);
    EXPECT_EQ(statement_names(nest), wanted);
    EXPECT_THAT(reads_of(nest, "s_again"), ElementsAre("dot_again"));
    EXPECT_THAT(reads_of(nest, "down"), ElementsAre("s_again"));
    EXPECT_EQ(reads_of(nest, named ? "power" : "sums").front(), "s_again");
    EXPECT_THAT(reads_of(nest, "top"), ElementsAre("s"));
    EXPECT_EQ(matches("product_across", nest), 0U) << "once";
  }
}

/// What both directions need, and stands behind one of them, has no copy in front of it.
TEST(ProductAcross, NothingIsCopiedBeforeWhatItReads) {
  Nest nest = crossed_rows(true);
  EXPECT_EQ(matches("product_across", nest), 1U);
  // A sum along rows that reads the exponentials down columns, which need the maxima of columns.
  Statement& total = nest.statements[position_of(nest, "total")];
  ASSERT_EQ(total.reads[0].tensor, "s");
  total.reads[0] = {"power", total.reads[0].relation.set_range_tuple("power")};
  EXPECT_EQ(matches("product_across", nest), 0U);
}

}  // namespace
}  // namespace nestor
