// Every refusal of an algebra rule names the rule, the target and the side condition that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "poly/algebra/all_rules.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/gathered_nests.h"
#include "support/nests/operand_nests.h"
#include "support/nests/pair_nests.h"
#include "support/nests/sample_nests.h"
#include "support/nests/scored_rows.h"
#include "support/nests/two_sources.h"

namespace nestor {
namespace {

using samples::number;
using samples::read;
using samples::operator*;
using samples::operator/;
using ::testing::HasSubstr;

std::string refusal(const Nest& nest, const std::string& name, const std::vector<std::string>& target) {
  try {
    rule(name).apply(nest, target);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(AlgebraError, UnknownRuleListsTheRules) {
  try {
    rule("magic");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "\"magic\" is no algebra rule; the rules are simplify, scalars_first, log_quotient, prefix_reduction, leave_out, "));
  }
}

TEST(AlgebraError, WrongTargets) {
  EXPECT_EQ(refusal(samples::matmul(), "online", {}), "rule online takes 1 arguments, not 0");
  EXPECT_EQ(refusal(samples::matmul(), "online", {"X"}), "rule online: nest matmul has no statement X");
  EXPECT_EQ(refusal(samples::matmul(), "simplify", {"C_init"}), "rule simplify takes 0 arguments, not 1");
}

TEST(AlgebraError, NothingToDo) {
  EXPECT_EQ(refusal(samples::stencil2d(), "reassociate", {}), "rule reassociate does not apply: the nest has no reduction");
  EXPECT_EQ(refusal(samples::matmul(), "simplify", {}), "rule simplify does not apply: nothing can be simplified");
  EXPECT_EQ(refusal(samples::matmul(), "exp2_scale", {}), "rule exp2_scale does not apply: the nest has no exp");
  EXPECT_THAT(refusal(samples::matmul(), "neutral_terms", {}), HasSubstr("no reduction has terms that are its neutral element"));
}

TEST(AlgebraError, KeepResultNeedsAResultThatIsReadAgain) {
  EXPECT_EQ(refusal(samples::matmul(), "materialize_factor", {"C_update"}),
            "rule materialize_factor does not apply to C_update: both factors are elements of tensors");
  for (const char* name :
       {"zero_terms",     "skip_zeros",         "batch_first", "join_rows",    "repeat_product", "keep_sums",     "split_terms",
        "narrow_copies",  "gather_terms",       "terms_last",  "columns_last", "skip_neutral",   "round_operand", "separate_sums",
        "expand_squares", "factor_exponential", "bf16x6",      "bf16x3",       "finite_masks",   "masked_product"})
    EXPECT_THAT(refusal(samples::matmul(), name, {"C_update"}), HasSubstr("does not apply to C_update: it ")) << name;
  EXPECT_EQ(refusal(samples::outer_products(), "zero_terms", {"sum"}),
            "rule zero_terms does not apply to sum: it leaves out no terms of the rectangle around it");
  EXPECT_EQ(refusal(samples::triangular_product(true), "skip_zeros", {"sum"}),
            "rule skip_zeros does not apply to sum: its temporary is no copy of a 16-bit tensor with zeros beside it");
  EXPECT_EQ(refusal(samples::outer_products(), "batch_first", {"sum"}),
            "rule batch_first does not apply to sum: neighbouring elements of its operands belong to one product");
  EXPECT_EQ(refusal(samples::interleaved_products(), "join_rows", {"sum"}),
            "rule join_rows does not apply to sum: no operand has whole rows along its last two indices, the last one of a known "
            "extent");
  EXPECT_EQ(refusal(samples::outer_products(), "join_results", {"out"}),
            "rule join_results does not apply to out: it reads no sum of products at an index that joins two of its dims");
  EXPECT_EQ(refusal(samples::outer_products(), "join_results", {"sum"}),
            "rule join_results does not apply to sum: it is no statement of its own loops that computes each element once, from "
            "other tensors");
  EXPECT_EQ(refusal(samples::outer_products(), "gather_terms", {"sum"}),
            "rule gather_terms does not apply to sum: its terms have no known extents that are the same for all results");
  EXPECT_EQ(refusal(samples::patches(), "terms_last", {"sum"}),
            "rule terms_last does not apply to sum: no dim of 16 terms or more is an index of both operands by itself");
  EXPECT_EQ(refusal(samples::channels_last(), "terms_last", {"sum"}),
            "rule terms_last does not apply to sum: neighbouring elements of its operands are neighbouring terms or rows");
  EXPECT_EQ(refusal(samples::patches(14, 1), "gather_terms", {"sum"}),
            "rule gather_terms does not apply to sum: zeros among its terms need a sum that starts from 0");
  EXPECT_EQ(refusal(samples::product_of_rows(16), "copy_rows", {"x"}),
            "rule copy_rows does not apply to x: it is no input of 16 bits whose rows are known to be no multiple of 16 bytes");
  EXPECT_EQ(refusal(samples::product_of_rows(7), "copy_rows", {"x"}),
            "rule copy_rows does not apply to x: its rows are shorter than a piece of a tile");
  EXPECT_EQ(
      refusal(samples::product_of_rows(), "copy_rows", {"sums"}),
      "rule copy_rows does not apply to sums: it is no input of 16 bits whose rows are known to be no multiple of 16 bytes");
  EXPECT_EQ(refusal(samples::outer_products(), "copy_rows", {"c"}),
            "rule copy_rows does not apply to c: it is no input of 16 bits whose rows are known to be no multiple of 16 bytes");
  EXPECT_EQ(refusal(samples::product_of_rows(), "gather_rows", {"sum"}),
            "rule gather_rows does not apply to sum: no operand is an input of 16 bits that tensor copies cannot step along");
  EXPECT_EQ(refusal(samples::many_indices("H", "B"), "gather_rows", {"s"}),
            "rule gather_rows does not apply to s: too many of the dims that the operand follows have no known extents");
  EXPECT_EQ(
      refusal(samples::grouped_filters("49"), "join_short_rows", {"sum"}),
      "rule join_short_rows does not apply to sum: no operand has whole rows along two indices, the last one of a known extent "
      "up to 48");
  EXPECT_EQ(refusal(fix_sizes(samples::norm_of_operand(), {{"K", 20}}), "copy_rows", {"x"}),
            "rule copy_rows does not apply to x: it is no operand of a sum of products of matrices");
  EXPECT_EQ(
      refusal(samples::shared_scores(true), "repeat_product", {"weight"}),
      "rule repeat_product does not apply to weight: others read the product, or it shares its loops with other statements");
  EXPECT_EQ(refusal(samples::matmul(), "keep_result", {"C_update"}),
            "rule keep_result does not apply to C_update: its result has several definitions, or is a reduction");
  EXPECT_EQ(refusal(samples::row_norm(), "keep_result", {"out"}),
            "rule keep_result does not apply to out: nobody reads its result");
  EXPECT_EQ(refusal(samples::row_norm(), "keep_result", {"mean_init"}),
            "rule keep_result does not apply to mean_init: it writes no result");
}

TEST(AlgebraError, JoinedSumsAreAdded) {
  EXPECT_EQ(
      refusal(samples::outer_products(), "join_sums", {}),
      "rule join_sums does not apply: no two sums of products of 16-bit tensors, whose terms are last indices, are only added "
      "together");
}

TEST(AlgebraError, KeptSumsMeetInAStatement) {
  EXPECT_EQ(refusal(samples::outer_products(), "keep_sums", {"sum"}),
            "rule keep_sums does not apply to sum: no reader of its result reads a sum of products of other tensors");
}

TEST(AlgebraError, ProductsAreComputedAgainBehindStatistics) {
  EXPECT_EQ(refusal(samples::returned_weights(), "product_again", {"total"}),
            "rule product_again does not apply to total: it makes no result, or is a reduction");
  EXPECT_EQ(refusal(samples::row_norm(), "product_again", {"out"}),
            "rule product_again does not apply to out: it does not come from one sum of products of two 16-bit tensors");
  EXPECT_EQ(refusal(samples::shared_scores(true), "product_again", {"scores"}),
            "rule product_again does not apply to scores: no reduction reads what it is made of");
}

TEST(AlgebraError, SlicesOfProductsStandBeforeWhatReadsAllOfThem) {
  EXPECT_EQ(refusal(samples::forgetting_scores(), "slice_product", {"score"}),
            "rule slice_product does not apply to score: it reduces no slice of what comes from a sum of products of two 16-bit "
            "tensors");
  EXPECT_EQ(refusal(samples::forgetting_scores(true), "slice_product", {"forgotten"}),
            "rule slice_product does not apply to forgotten: others read other slices, or all of it before");
}

TEST(AlgebraError, ProductsAcrossAreOfSumsReducedBothWays) {
  EXPECT_EQ(refusal(samples::crossed_rows(), "product_across", {"total"}),
            "rule product_across does not apply to total: it is no sum of products of two 16-bit tensors");
  EXPECT_EQ(refusal(samples::returned_weights(), "product_across", {"dot"}),
            "rule product_across does not apply to dot: its rows and its columns are not both reduced");
}

TEST(AlgebraError, RowReductionsAreOfSeveralDimsAndLeaveSome) {
  const auto refused = [](const Nest& nest, const std::vector<std::string>& target) {
    return refusal(nest, "row_reduction", target);
  };
  const std::string start = "rule row_reduction does not apply to ";
  const Nest pairs = samples::summed_pairs();
  EXPECT_EQ(refused(pairs, {"sum", "i"}), "(no error)") << "columns may come last";
  EXPECT_EQ(refused(pairs, {"sum"}), "rule row_reduction takes a statement and the dims that it reduces first");
  EXPECT_EQ(refused(pairs, {"X", "j"}), "rule row_reduction: nest summed_pairs has no statement X");
  EXPECT_EQ(refused(pairs, {"loss", "j"}), start + "loss: it is no reduction in f32");
  EXPECT_EQ(refused(samples::summed_pairs({.total = ElementType::f16}), {"sum", "j"}), start + "sum: it is no reduction in f32");
  EXPECT_EQ(refused(pairs, {"product", "k"}), start + "product: it reduces one dim alone");
  EXPECT_EQ(refused(pairs, {"sum", "b"}), start + "sum: b is not reduced");
  EXPECT_EQ(refused(pairs, {"sum", "x"}), start + "sum: x is not reduced");
  for (const std::vector<std::string>& target : {std::vector<std::string>{"sum", "i", "j"}, {"sum", "j", "j"}})
    EXPECT_EQ(refused(pairs, target), start + "sum: the dims are not some of those that it reduces, each once");
  Nest own = pairs;
  for (Statement& statement : own.statements) {
    if (statement.name != "sum") continue;
    statement.reads.push_back(statement.write);
    statement.value = samples::operator+(read(0), read(1));
  }
  EXPECT_EQ(refused(own, {"sum", "j"}), start + "sum: its terms read its own result");
  Nest joined = pairs;
  for (Statement& statement : joined.statements) {
    if (statement.name == "sum") statement.group = joined.statement("init").group;
  }
  EXPECT_EQ(refused(joined, {"sum", "j"}), start + "sum: it shares its loops with other statements of its definition");
  Nest below = pairs;
  for (Statement& statement : below.statements) {
    if (statement.name != "sum") continue;
    statement.domain = parse_set("[B, M, N, K] -> { sum[b, i, j] : 0 <= b < B and -3 <= i < M - 3 and 0 <= j < N }", "test");
    statement.reads[0].relation = parse_map("[B, M, N, K] -> { sum[b, i, j] -> loss[b, i + 3, j] }", "test");
  }
  ASSERT_NO_THROW(validate(below));
  EXPECT_EQ(refused(below, {"sum", "j"}), start + "sum: a dim that is left has negative values");
  EXPECT_EQ(refused(below, {"sum", "i"}), "(no error)") << "no tensor has that dim";
}

TEST(AlgebraError, RecomputedValuesAreCheapAndReadOnce) {
  EXPECT_EQ(refusal(samples::softmax(), "recompute", {"L_update"}),
            "rule recompute does not apply to L_update: it is not the only definition of a temporary, or is a reduction");
  EXPECT_EQ(refusal(samples::late_division_norm(), "recompute", {"mean"}),
            "rule recompute does not apply to mean: squares_update reads its elements several times");
  EXPECT_EQ(refusal(samples::normalised_attention(), "recompute", {"P"}),
            "rule recompute does not apply to P: O_update reads its elements several times");
}

TEST(AlgebraError, RecomputedValuesAreReadAFewTimesAtMostAndThenMadeOfOthers) {
  const std::string several = "rule recompute does not apply to apart: force reads its elements several times";
  const auto summed = [](const Nest& nest) { return rule("recompute").apply(nest, {"sum"}).nest; };
  EXPECT_EQ(refusal(summed(samples::pulling_points("5")), "recompute", {"apart"}), several);
  EXPECT_EQ(refusal(summed(samples::pulling_points("A")), "recompute", {"apart"}), several) << "how often hangs on a size";
  EXPECT_EQ(refusal(samples::pulling_points(), "recompute", {"apart"}), several) << "it reads elements of its own";
  // What a sum would read is a result.
  Nest stored = samples::pulling_points();
  for (Tensor& tensor : stored.tensors) {
    if (tensor.name == "apart") tensor.role = TensorRole::output;
  }
  EXPECT_EQ(refusal(summed(stored), "recompute", {"apart"}),
            "rule recompute does not apply to apart: it is not the only definition of a temporary, or is a reduction")
      << "a result stays in memory";
  const Nest maps = samples::NestBuilder("maps", {{"N", 2}})
                        .tensor("x", TensorRole::input, {"N"})
                        .tensor("t", TensorRole::temporary, {"N"})
                        .tensor("out", TensorRole::output, {"N"})
                        .statement("t[n] : 0 <= n < N", "t[n]", {"x[n]"}, ScalarExpr::make(ScalarOp::abs, {samples::read(0)}))
                        .tensor("more", TensorRole::output, {"N"})
                        .statement("out[n] : 0 <= n < N", "out[n]", {"t[n]"}, ScalarExpr::make(ScalarOp::exp, {samples::read(0)}))
                        .statement("more[n] : 0 <= n < N", "more[n]", {"t[n]"}, samples::read(0))
                        .build();
  EXPECT_EQ(refusal(maps, "recompute", {"t"}),
            "rule recompute does not apply to t: no reduction reads it, nor one definition alone");
}

TEST(AlgebraError, SumsThatAreAddedUpAgainHaveFewTermsOfOthers) {
  const std::string no_value =
      "rule recompute does not apply to apart: it is not the only definition of a temporary, or is a reduction";
  EXPECT_EQ(refusal(samples::nearest_points("5"), "recompute", {"apart"}), no_value);
  EXPECT_EQ(refusal(samples::nearest_points("C"), "recompute", {"apart"}), no_value) << "the number of terms hangs on a size";
  EXPECT_EQ(refusal(samples::nearest_points("3", ElementType::f16), "recompute", {"apart"}), no_value) << "rounded at its end";
  Nest own = samples::nearest_points();
  for (Tensor& tensor : own.tensors) {
    if (tensor.name == "x") tensor.shape.insert(tensor.shape.begin() + 2, own.tensor("y").shape[1]);
  }
  for (Statement& statement : own.statements) {
    if (statement.name == "apart")
      statement.reads[0].relation = parse_map("[B, N, M, C] -> { apart[n, i, j, c] -> x[n, i, j, c] }", "test");
  }
  ASSERT_NO_THROW(validate(own));
  EXPECT_EQ(refusal(own, "recompute", {"apart"}),
            "rule recompute does not apply to apart: each of its elements is made of others");
  // One term fewer below the diagonal: no value has them all.
  Nest ragged = samples::nearest_points();
  for (Statement& statement : ragged.statements) {
    if (statement.name == "apart")
      statement.domain = parse_set(
          "[B, N, M, C] -> { apart[n, i, j, c] : 0 <= n < B and 0 <= i < N and 0 <= j < M and 0 <= c < 3 and c <= i }", "test");
  }
  EXPECT_EQ(refusal(ragged, "recompute", {"apart"}), no_value);
}

TEST(AlgebraError, LateDefinitionsNeedOneThatStandsInTheWay) {
  EXPECT_EQ(refusal(samples::matmul(), "late_definitions", {}),
            "rule late_definitions does not apply: no definition stands between reductions that do not need it");
  EXPECT_EQ(refusal(samples::early_denominator(false), "late_definitions", {}),
            "rule late_definitions does not apply: no definition stands between reductions that do not need it");
  EXPECT_EQ(refusal(samples::early_denominator(), "late_definitions", {"below"}),
            "rule late_definitions takes 0 arguments, not 1");
}

TEST(AlgebraError, LocalExtremaNeedSeveralThatMeet) {
  EXPECT_EQ(refusal(samples::softmax_over_two(), "local_extremum", {"t"}), "(no error)");
  EXPECT_EQ(refusal(samples::softmax_over_two(), "local_extremum", {"p"}),
            "rule local_extremum does not apply to p: it is no maximum or minimum of several reductions");
}

TEST(AlgebraError, OnlineNeedsAnExtremum) {
  EXPECT_EQ(refusal(samples::matmul(), "online", {"C_update"}),
            "rule online does not apply to C_update: it is no reduction by max or min");
}

TEST(AlgebraError, OnlineTakesAThresholdInDoublings) {
  for (const char* wrong : {"0", "15", "much", "nan", "8 or so", ""}) {
    EXPECT_EQ(
        refusal(samples::softmax(), "online", {"Mx_update", wrong}),
        std::string(
            "rule online does not apply to Mx_update: its second argument is how many times terms may double, 1 to 14, not ") +
            wrong);
  }
}

/// A number in place of the maximum, or one that stays behind it, must not be seen.
TEST(AlgebraError, AReferenceMustLeaveResultsAsTheyAre) {
  const auto both = [](const Nest& nest, const std::string& reason) {
    EXPECT_NO_THROW(validate(nest));
    for (const auto& [rule, target] : {std::pair("fixed_extremum", std::vector<std::string>{"Mx_update"}),
                                       std::pair("online", std::vector<std::string>{"Mx_update", "8"})}) {
      EXPECT_EQ(refusal(nest, rule, target), std::string("rule ") + rule + " does not apply to Mx_update: " + reason);
    }
  };
  const auto binary = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  Nest plain = samples::limited_scores();
  samples::value_of(plain, "lse") =
      binary(ScalarOp::add, binary(ScalarOp::mul, read(0), number(2)), samples::apply(ScalarOp::log, read(1)));
  both(plain, "lse depends on Mx itself");
  samples::value_of(plain, "lse") = binary(ScalarOp::add, read(0), read(1));
  both(plain, "in lse, a sum of values that move differently");
  samples::value_of(plain, "lse") = samples::apply(ScalarOp::tanh, read(0));
  both(plain, "in lse, Mx passes through tanh");
  samples::value_of(plain, "lse") =
      ScalarExpr::make(ScalarOp::select, {binary(ScalarOp::lt, read(0), number(1)), number(1), number(2)});
  both(plain, "in lse, a comparison depends on the leading value");
  plain = samples::limited_scores();
  samples::value_of(plain, "O") = read(0);
  both(plain, "O depends on Mx itself");
}

TEST(AlgebraError, FixedExtremumNeedsBoundedTerms) {
  EXPECT_EQ(refusal(samples::matmul(), "fixed_extremum", {"C_update"}),
            "rule fixed_extremum does not apply to C_update: it is no reduction by max or min");
  EXPECT_EQ(
      refusal(samples::softmax(), "fixed_extremum", {"Mx_update"}),
      "rule fixed_extremum does not apply to Mx_update: nothing bounds its terms: they are neither values of a bounded function "
      "nor limited by the ranges of scalars");
  EXPECT_EQ(refusal(samples::limited_scores(60), "fixed_extremum", {"Mx_update"}),
            "rule fixed_extremum does not apply to Mx_update: its terms reach 2^-86.56 and 2^86.56: no number leaves all of them "
            "within 2^-100 and 2^60");
}

TEST(AlgebraError, OnlineNeedsTheLeadsOwnTerms) {
  Nest nest = samples::scores_softmax_values();
  // P = exp(QK - Mx), but Mx is the maximum of S.
  nest.statements[5].reads[0] = {"QK", nest.statements[5].reads[0].relation.set_range_tuple("QK")};
  EXPECT_THAT(refusal(nest, "online", {"Mx_update"}), HasSubstr("in P, the exponent is no multiple of the difference"));
}

TEST(AlgebraError, OnlineNeedsTermsThatTheLeadHasSeen) {
  Nest nest = samples::scores_softmax_values();
  nest.statement("Mx_update");
  nest.statements[4].domain = isl::set(isl_context(), "[R, C, D] -> { Mx_update[i, j] : 0 <= i < R and 0 <= j < C and j <= i }");
  EXPECT_THAT(refusal(nest, "online", {"Mx_update"}), HasSubstr("in P, it uses terms that the leading value has not seen"));
}

TEST(AlgebraError, OnlineNeedsAFallingExponent) {
  EXPECT_THAT(refusal(samples::inlined_softmax_sum(-1), "online", {"Mx_update"}),
              HasSubstr("in L_update, the exponent grows beyond all bounds"));
}

TEST(AlgebraError, OnlineNeedsASumFromZero) {
  Nest nest = samples::scores_softmax_values();
  nest.statements[6].value = number(1);
  nest.statements[8].value = number(1);
  EXPECT_THAT(refusal(nest, "online", {"Mx_update"}), HasSubstr("in L_update, the sum does not start from 0"));
}

TEST(AlgebraError, OnlineNeedsOneLeadingValueAnAccumulator) {
  Nest nest = samples::scores_softmax_values();
  // L sums over rows as well.
  nest.statements[7].write.relation = isl::map(isl_context(), "[R, C, D] -> { L_update[i, j] -> L[0] }");
  nest.statements.resize(8);
  EXPECT_THAT(refusal(nest, "online", {"Mx_update"}),
              HasSubstr("in L_update, one accumulator would need several leading values"));
}

TEST(AlgebraError, MomentsNeedTheMean) {
  Nest nest = samples::row_norm();
  nest.statements[1].value = read(0);
  EXPECT_THAT(refusal(nest, "moments", {"mean_update"}), HasSubstr("in variance_update, what is subtracted is not the mean"));
}

TEST(AlgebraError, MomentsNeedTheSamePoints) {
  Nest nest = samples::row_norm();
  nest.statements[3].domain =
      isl::set(isl_context(), "[rows, cols] -> { variance_update[i, k] : 0 <= i < rows and 1 <= k < cols }");
  EXPECT_THAT(refusal(nest, "moments", {"mean_update"}), HasSubstr("the square is not taken over the same points"));
}

TEST(AlgebraError, MomentsNeedACountableRange) {
  Nest nest = samples::row_norm();
  nest.statements[1].domain =
      isl::set(isl_context(), "[rows, cols] -> { mean_update[i, k] : 0 <= i < rows and 0 <= k < cols and k mod 2 = 0 }");
  EXPECT_THAT(refusal(nest, "moments", {"mean_update"}), HasSubstr("so its points cannot be counted"));
}

TEST(AlgebraError, MomentsNeedAllCombinationsOfSeveralRanges) {
  Nest nest = samples::channel_norm();
  nest.statements[1].domain =
      isl::set(isl_context(), "[N, S, C] -> { total_update[c, n, s] : 0 <= c < C and 0 <= n < N and n <= s < S }");
  EXPECT_THAT(refusal(nest, "moments", {"total_update"}), HasSubstr("so its points cannot be counted"));
}

TEST(AlgebraError, MomentsNeedASquare) {
  EXPECT_THAT(refusal(samples::matmul(), "moments", {"C_update"}), HasSubstr("no sum of squares around its mean follows it"));
}

TEST(AlgebraError, DeferNeedsACommonFactor) {
  EXPECT_EQ(refusal(samples::matmul(), "defer_factor", {"C_update"}),
            "rule defer_factor does not apply to C_update: no factor of its terms is the same for all points of an element");
  EXPECT_THAT(refusal(samples::scores_softmax_values(), "defer_factor", {"Mx_update"}), HasSubstr("it is no sum"));
}

/// p = x * number * w[i] / d[i] masked by a select, r = sum of p: w and d are the same for a row.
Nest masked_products(double factor, bool divided) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  const ScalarExpr masked = ScalarExpr::make(
      ScalarOp::select,
      {ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(1), ScalarExpr::index(0)}), read(0), ScalarExpr::constant(0)});
  const ScalarExpr row_factor = divided ? ScalarExpr::constant(1) / read(1) : read(1);
  return samples::NestBuilder("masked_products", {{"R", 4}, {"C", 4}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("w", TensorRole::input, {"R"})
      .tensor("p", TensorRole::temporary, {"R", "C"})
      .tensor("r", TensorRole::output, {"R"})
      .statement("p[i, j] : " + pair, "p[i, j]", {"x[i, j]", "w[i]"}, masked * number(factor) * row_factor, std::nullopt,
                 {"i", "j"})
      .statement("r_init[i] : " + row, "r[i]", {}, number(0))
      .statement("r_update[i, j] : " + pair, "r[i]", {"p[i, j]"}, read(0), ReductionOp::add)
      .build();
}

TEST(AlgebraError, DeferKeepsProductsFromOverflowingInAnotherOrder) {
  EXPECT_EQ(refusal(masked_products(2, false), "defer_factor", {"r_update"}), "(no error)");
  EXPECT_EQ(refusal(masked_products(1e30, false), "defer_factor", {"r_update"}),
            "rule defer_factor does not apply to r_update: no factor of its terms is the same for all points of an element: the "
            "factor 1e+30 is not within 2^-48 and 2^48: in another order products may overflow");
}

TEST(AlgebraError, NeutralTermsKeepsWhatMayBeDividedByZero) {
  EXPECT_EQ(refusal(masked_products(2, false), "neutral_terms", {}), "(no error)");
  EXPECT_THAT(refusal(masked_products(2, true), "neutral_terms", {}),
              HasSubstr("in p, what stands beside 0 may be infinite where its operands are finite"));
}

TEST(AlgebraError, SplitNeedsAReducedDim) {
  const Nest nest = samples::matmul();
  EXPECT_THAT(refusal(nest, "split_reduction", {"C_update", "i", "p", "4"}),
              HasSubstr("does not apply to C_update: i is not reduced"));
  EXPECT_THAT(refusal(nest, "split_reduction", {"C_update", "x", "p", "4"}), HasSubstr("C_update has no dim x"));
  EXPECT_THAT(refusal(nest, "split_reduction", {"C_update", "k", "p", "0"}), HasSubstr("must be a positive integer, not \"0\""));
  EXPECT_THAT(refusal(nest, "split_reduction", {"C_update", "k", "p", "4x"}),
              HasSubstr("must be a positive integer, not \"4x\""));
  EXPECT_THAT(refusal(nest, "split_reduction", {"C_update", "k", "j", "4"}), HasSubstr("\"j\" cannot name the parts"));
  EXPECT_THAT(refusal(nest, "split_reduction", {"C_init", "i", "p", "4"}), HasSubstr("it is no reduction"));
}

}  // namespace
}  // namespace nestor
