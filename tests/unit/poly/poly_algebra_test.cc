// What each rule finds, what it makes of it, and what it leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "poly/algebra/all_rules.h"
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/algebra/reprove.h"
#include "poly/algebra/rules/online.h"
#include "poly/algebra/values/few_terms.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/gathered_nests.h"
#include "support/nests/pair_nests.h"
#include "support/nests/sample_nests.h"

namespace nestor {
namespace {

using samples::Mask;
using samples::number;
using samples::read;
using samples::operator+;
using samples::operator-;
using samples::operator*;
using samples::operator/;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> targets_of(const Nest& nest, const std::string& name) {
  std::vector<std::string> targets;
  for (const RuleMatch& match : rule(name).find(nest)) targets.push_back(match.target.empty() ? "" : match.target[0]);
  return targets;
}

std::vector<std::string> followers_of(const Composite& composite) {
  std::vector<std::string> names;
  for (const Follower& follower : composite.followers) names.push_back(follower.statement);
  return names;
}

std::string value_text(const Nest& nest, const std::string& statement) {
  const Statement& s = nest.statement(statement);
  return s.value.str([&](int k) { return s.reads.at(static_cast<std::size_t>(k)).tensor; }, [](int) { return "index"; });
}

bool same_domain(const Nest& a, const Nest& b, const std::string& statement) {
  return a.statement(statement).domain.intersect_params(a.context).is_equal(
      b.statement(statement).domain.intersect_params(b.context));
}

TEST(Algebra, RulesCarryTheirProofAndRounding) {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) {
    names.push_back(rule.name);
    EXPECT_FALSE(rule.summary.empty() || rule.proof.empty() || rule.rounding.empty()) << rule.name;
  }
  EXPECT_THAT(
      names, testing::UnorderedElementsAre(
                 "reassociate", "online", "moments", "defer_factor", "neutral_terms", "exp2_scale", "simplify", "split_reduction",
                 "reciprocal", "keep_result", "factor_extremum", "fixed_extremum", "start_extremum", "materialize_factor",
                 "late_definitions", "zero_terms", "skip_zeros", "narrow_copies", "gather_terms", "batch_first", "slice_product",
                 "slice_results", "terms_last", "columns_last", "skip_neutral", "join_rows", "join_results", "join_sums",
                 "repeat_product", "recompute", "keep_sums", "split_terms", "expand_squares", "copy_rows", "product_again",
                 "product_across", "round_operand", "separate_sums", "nest_products", "nest_sums", "factor_exponential",
                 "integer_product", "bf16x6", "bf16x3", "join_dims", "repeat_elements", "row_reduction", "gather_rows",
                 "join_short_rows", "forward_pieces", "nest_operands", "log_quotient", "split_dims", "finite_masks",
                 "nest_extrema", "prefix_reduction", "reroll_sums", "reroll_terms", "chain_order", "leave_out",
                 "early_definitions", "unskew_dims", "gather_sums", "flatten_sums", "local_extremum", "fold_storage",
                 "masked_product", "scalars_first", "dense_terms", "skip_blocks"));
}

TEST(Algebra, ReciprocalMakesAQuotientByARowsValueAProduct) {
  const Nest nest = rule("reciprocal").apply(samples::softmax(), {}).nest;
  EXPECT_EQ(value_text(nest, "y"), "(E * (1 / L))");
  EXPECT_TRUE(targets_of(nest, "reciprocal").empty());
  // Sums are for defer_factor, and a divisor that changes along the row stays one.
  EXPECT_TRUE(targets_of(samples::matmul(), "reciprocal").empty());
}

TEST(Algebra, ReciprocalMakesAQuotientByARootAProductEverywhere) {
  const Nest roots = samples::quotients_by_roots();
  const Nest nest = rule("reciprocal").apply(roots, {}).nest;
  EXPECT_EQ(value_text(nest, "y"), "(x * rsqrt((abs(z) + 1)))");
  EXPECT_TRUE(targets_of(nest, "reciprocal").empty());
  Nest quotients = roots;
  samples::value_of(quotients, "y") = samples::operator/(read(0), read(1));
  EXPECT_TRUE(targets_of(quotients, "reciprocal").empty()) << "no root";
}

TEST(FactorExtremum, APositiveScaleGoesToTheExponentAndItsCorrection) {
  const Nest nest = samples::with_positive_scalars(samples::scores_softmax_values());
  const Nest scaled = rule("exp2_scale").apply(nest, {}).nest;
  ASSERT_THAT(targets_of(scaled, "factor_extremum"), ElementsAre("Mx_update"));
  const Nest factored = rule("factor_extremum").apply(scaled, {"Mx_update"}).nest;
  EXPECT_EQ(value_text(factored, "S"), "QK");
  EXPECT_EQ(value_text(factored, "P"), "exp2(((S * (scale * 1.4426950408889634)) - (Mx * (scale * 1.4426950408889634))))");
  EXPECT_TRUE(targets_of(factored, "factor_extremum").empty());
  const RuleResult online = rule("online").apply(factored, {"Mx_update"});
  EXPECT_EQ(online.composites.at(0).followers.at(0).correction.str({}, {}),
            "(r * select((m_old == m_new), 1, exp2(((m_old - m_new) * (scale * 1.4426950408889634)))))");
}

TEST(FactorExtremum, AFiniteStartIsDividedWhereThatIsExact) {
  Nest nest = samples::with_positive_scalars(samples::scores_softmax_values());
  samples::value_of(nest, "Mx_init") = number(-1e30);
  EXPECT_THAT([&] { rule("factor_extremum").apply(nest, {"Mx_update"}); },
              testing::ThrowsMessage<UserError>(HasSubstr("Mx starts from -1e+30, which has no finite quotient by scale")));
  samples::value_of(nest, "S") = ScalarExpr::make(ScalarOp::mul, {read(0), number(0.25)});
  samples::value_of(nest, "Mx_init") = number(-3);
  EXPECT_EQ(value_text(rule("factor_extremum").apply(nest, {"Mx_update"}).nest, "Mx_init"), "-12");
  samples::value_of(nest, "Mx_init") = number(std::numeric_limits<float>::lowest());
  EXPECT_TRUE(targets_of(nest, "factor_extremum").empty()) << "four times the lowest number is no number";
}

TEST(FactorExtremum, AStartIsRoundedWhereExponentialsAloneSeeIt) {
  Nest nest = rule("exp2_scale").apply(samples::with_positive_scalars(samples::scores_softmax_values()), {}).nest;
  samples::value_of(nest, "S") = ScalarExpr::make(ScalarOp::mul, {read(0), number(0.08838834)});
  samples::value_of(nest, "Mx_init") = number(-1e30);
  const Nest factored = rule("factor_extremum").apply(nest, {"Mx_update"}).nest;
  EXPECT_NEAR(factored.statement("Mx_init").value.number() / -1.1313709e31, 1, 1e-6);
  for (Statement& statement : nest.statements) {
    if (statement.name == "P") statement.value = ScalarExpr::make(ScalarOp::max, {statement.value, read(1)});
  }
  EXPECT_THAT([&] { rule("factor_extremum").apply(nest, {"Mx_update"}); },
              testing::ThrowsMessage<UserError>(HasSubstr("has no exact quotient by 0.08838834")));
}

TEST(FactorExtremum, WhatHidesTermsKeepsItsPlace) {
  Nest nest = samples::with_positive_scalars(samples::scores_softmax_values());
  const ScalarExpr seen = ScalarExpr::make(ScalarOp::lt, {read(0), number(3)});
  const ScalarExpr hidden = ScalarExpr::make(ScalarOp::select, {seen, number(0), number(-samples::infinity())});
  const ScalarExpr scaled = ScalarExpr::make(ScalarOp::mul, {read(0), number(0.25)});
  const auto factored = [&] { return value_text(rule("factor_extremum").apply(nest, {"Mx_update"}).nest, "S"); };
  samples::value_of(nest, "S") = scaled + hidden;
  EXPECT_EQ(factored(), "(QK + select((QK < 3), 0, -inf))");
  samples::value_of(nest, "S") = ScalarExpr::make(ScalarOp::select, {seen, scaled, number(-samples::infinity())});
  EXPECT_EQ(factored(), "select((QK < 3), QK, -inf)");
  samples::value_of(nest, "S") = scaled + number(1);
  EXPECT_TRUE(targets_of(nest, "factor_extremum").empty()) << "1 is no multiple of itself";
}

TEST(FactorExtremum, AScaleOfUnknownSignStays) {
  const Nest nest = samples::scores_softmax_values();
  EXPECT_TRUE(targets_of(nest, "factor_extremum").empty());
  EXPECT_THAT([&] { rule("factor_extremum").apply(nest, {"Mx_update"}); },
              testing::ThrowsMessage<UserError>(HasSubstr("the value of S has no factor that is known to be positive")));
}

/// Attention whose row meets one more score, as attention with sinks does: M = max(Mx, y), L' = L + exp(y - M).
Nest with_sink(const ScalarExpr& meeting, const std::string& sink = "y[i]") {
  return samples::NestBuilder("sinks", {{"R", 4}, {"C", 5}})
      .tensor("x", TensorRole::input, {"R", "C"})
      .tensor("y", TensorRole::input, {"R"})
      .tensor("Mx", TensorRole::temporary, {"R"})
      .tensor("M", TensorRole::temporary, {"R"})
      .tensor("L", TensorRole::temporary, {"R"})
      .tensor("out", TensorRole::output, {"R"})
      .statement("Mx_init[i] : 0 <= i < R", "Mx[i]", {}, number(-samples::infinity()))
      .statement("Mx_update[i, j] : 0 <= i < R and 0 <= j < C", "Mx[i]", {"x[i, j]"}, read(0), ReductionOp::max)
      .statement("M[i] : 0 <= i < R", "M[i]", {"Mx[i]", sink}, meeting)
      .statement("L_init[i] : 0 <= i < R", "L[i]", {}, number(0))
      .statement("L_update[i, j] : 0 <= i < R and 0 <= j < C", "L[i]", {"x[i, j]", "M[i]"},
                 samples::apply(ScalarOp::exp, read(0) - read(1)), ReductionOp::add)
      .statement("out[i] : 0 <= i < R", "out[i]", {"L[i]", "y[i]", "M[i]"},
                 read(0) + samples::apply(ScalarOp::exp, read(1) - read(2)))
      .build();
}

TEST(StartExtremum, AnExtremumStartsFromTheValueItMeets) {
  const Nest nest = with_sink(ScalarExpr::make(ScalarOp::max, {read(0), read(1)}));
  ASSERT_THAT(targets_of(nest, "start_extremum"), ElementsAre("M"));
  const Nest started = rule("start_extremum").apply(nest, {"M"}).nest;
  EXPECT_EQ(started.find_statement("M"), nullptr);
  EXPECT_EQ(value_text(started, "Mx_init"), "y");
  EXPECT_EQ(started.statement("Mx_update").write.tensor, "M");
  EXPECT_TRUE(targets_of(nest, "online").empty());
  EXPECT_THAT(targets_of(started, "online"), ElementsAre("Mx_update"));
  // The largest of all terms and the sink's is 1: what a softmax divides by.
  const Statement& sum = started.statement("out");
  EXPECT_EQ(range_of(started, sum, sum.value).low, 0.5);
  EXPECT_EQ(range_of(nest, nest.statement("out"), nest.statement("out").value).low, 0);
}

TEST(StartExtremum, RefusesWhatIsNoStart) {
  const ScalarExpr meeting = ScalarExpr::make(ScalarOp::max, {read(0), read(1)});
  const auto refusal = [](const Nest& nest) {
    try {
      rule("start_extremum").apply(nest, {"M"});
      return std::string("(no error)");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal(with_sink(ScalarExpr::make(ScalarOp::max, {read(1), read(0)}))), "(no error)");
  EXPECT_THAT(refusal(with_sink(ScalarExpr::make(ScalarOp::min, {read(0), read(1)}))),
              HasSubstr("Mx is no extremum of the same kind"));
  EXPECT_THAT(refusal(with_sink(read(0) + read(1))), HasSubstr("it is no maximum or minimum of two values"));
  EXPECT_THAT(refusal(with_sink(ScalarExpr::make(ScalarOp::max, {read(0), read(0) * read(1)}))),
              HasSubstr("Mx is read for itself as well"));
  EXPECT_THAT(refusal(with_sink(meeting, "Mx[i]")), HasSubstr("Mx is read for itself as well"));
  Nest started = with_sink(meeting);
  samples::value_of(started, "Mx_init") = number(-7);
  EXPECT_THAT(refusal(started), HasSubstr("Mx does not start from its neutral element alone"));
  Nest result = with_sink(meeting);
  result.tensors[2].role = TensorRole::output;
  EXPECT_THAT(refusal(result), HasSubstr("Mx is a result itself"));
}

TEST(Algebra, ReassociateNeedsAReduction) {
  EXPECT_TRUE(rule("reassociate").apply(samples::matmul(), {}).reassociation);
  EXPECT_TRUE(targets_of(samples::stencil2d(), "reassociate").empty());
}

TEST(Online, AttentionIsOneComposite) {
  const Nest nest = samples::scores_softmax_values();
  EXPECT_THAT(targets_of(nest, "online"), ElementsAre("Mx_update"));
  const RuleResult result = rule("online").apply(nest, {"Mx_update"});
  ASSERT_EQ(result.composites.size(), 1U);
  const Composite& composite = result.composites[0];
  EXPECT_EQ(composite.lead_tensor, "Mx");
  EXPECT_THAT(composite.mediators, ElementsAre("P"));
  EXPECT_THAT(followers_of(composite), ElementsAre("L_update", "PV_update"));
  EXPECT_EQ(composite.view.str({}, {}), "max(m, -3.4028234663852886e+38)") << "scores may be minus infinity by overflow";
  EXPECT_EQ(composite.corrected_by().str({}, {}), "m");
  EXPECT_EQ(composite.followers[0].correction.str({}, {}), "(r * select((m_old == m_new), 1, exp((m_old - m_new))))");
}

TEST(Online, MaskedScoresKeepTheRunningMaximumFinite) {
  const RuleResult result = rule("online").apply(samples::scores_softmax_values(Mask::select), {"Mx_update"});
  const ScalarExpr view = result.composites.at(0).view;
  const auto at = [&](double m) {
    return evaluate(view, [](int) { return 0.0; }, [](int) { return 0; }, [&](const std::string&) { return m; });
  };
  EXPECT_EQ(at(-3), -3);
  EXPECT_TRUE(std::isfinite(at(-samples::infinity())));
}

TEST(Online, CorrectionOfAnUnmovedMaximumIsOneEvenAtMinusInfinity) {
  const Composite composite = rule("online").apply(samples::scores_softmax_values(), {"Mx_update"}).composites.at(0);
  const auto corrected = [&](double r, double m_old, double m_new) {
    return evaluate(
        composite.followers[0].correction, [](int) { return 0.0; }, [](int) { return 0; },
        [&](const std::string& name) { return name == "r"       ? r
                                              : name == "m_old" ? m_old
                                                                : m_new; });
  };
  EXPECT_EQ(corrected(0, -samples::infinity(), -samples::infinity()), 0);
  EXPECT_EQ(corrected(0, -samples::infinity(), 4), 0);
  EXPECT_EQ(corrected(5, 2, 2), 5);
  EXPECT_NEAR(corrected(5, 1, 3), 5 * std::exp(-2), 1e-12);
}

TEST(Online, TermsThatOthersReadAreCopied) {
  const RuleResult result = rule("online").apply(samples::softmax(), {"Mx_update"});
  EXPECT_THAT(result.composites.at(0).mediators, ElementsAre("E_running"));
  EXPECT_EQ(value_text(result.nest, "L_update"), "E_running");
  EXPECT_EQ(value_text(result.nest, "y"), "(E / L)");
}

TEST(Online, InlinedTermsGetTheirOwnStatementWhereItSavesWork) {
  const RuleResult result = rule("online").apply(samples::inlined_softmax_sum(), {"Mx_update"});
  EXPECT_EQ(value_text(result.nest, "PV_update"), "(PV_update_term * V)");
  EXPECT_THAT(result.nest.statement("PV_update_term").dims, ElementsAre("i", "j"));
  EXPECT_EQ(value_text(result.nest, "L_update"), "exp(((S - Mx) * 1))");
  EXPECT_THAT(result.composites.at(0).mediators, ElementsAre("PV_update_term"));
  EXPECT_THAT(followers_of(result.composites.at(0)), ElementsAre("L_update", "PV_update"));
}

TEST(Online, NormalisedTermsAreNoFollowersUntilTheFactorIsDeferred) {
  const Nest nest = samples::normalised_attention();
  EXPECT_THAT(followers_of(rule("online").apply(nest, {"Mx_update"}).composites.at(0)), ElementsAre("L_update"));
  const Nest deferred = rule("defer_factor").apply(nest, {"O_update"}).nest;
  EXPECT_EQ(value_text(deferred, "O_update"), "(E * V)");
  EXPECT_EQ(deferred.find_statement("P"), nullptr);
  EXPECT_THAT(followers_of(rule("online").apply(deferred, {"Mx_update"}).composites.at(0)), ElementsAre("L_update", "O_update"));
}

TEST(Online, DerivedCompositeIsProvedAgainAfterOtherRules) {
  const RuleResult online = rule("online").apply(samples::scores_softmax_values(), {"Mx_update"});
  const Nest scaled = rule("exp2_scale").apply(online.nest, {}).nest;
  const auto composites = reprove(scaled, online.composites);
  ASSERT_EQ(composites.size(), 1U);
  EXPECT_EQ(composites[0].followers[0].correction.str({}, {}), "(r * select((m_old == m_new), 1, exp2((m_old - m_new))))");
  EXPECT_TRUE(reprove(samples::matmul(), online.composites).empty());
}

TEST(Algebra, CompositesWhoseTermsOthersReadAreGivenUp) {
  const RuleResult online = rule("online").apply(samples::scores_softmax_values(), {"Mx_update"});
  std::vector<Composite> composites = online.composites;
  ASSERT_EQ(followers_of(composites.at(0)), (std::vector<std::string>{"L_update", "PV_update"}));
  ASSERT_EQ(reprove(online.nest, composites).size(), 1u);
  composites[0].followers.pop_back();  // PV reads E too, which is relative to the running maximum
  EXPECT_TRUE(reprove(online.nest, composites).empty());
}

TEST(Online, TermsStoredInHalfPrecisionAreStillHomogeneous) {
  Nest nest = samples::scores_softmax_values();
  nest.tensors[6].type = ElementType::f16;
  const ScalarExpr stored = ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16));
  nest.statements[5].value = ScalarExpr::cast(ElementType::f16, nest.statements[5].value);
  nest.statements[7].value = stored;
  nest.statements[9].value = ScalarExpr::make(ScalarOp::mul, {stored, read(1)});
  ASSERT_NO_THROW(validate(nest));
  EXPECT_THAT(followers_of(rule("online").apply(nest, {"Mx_update"}).composites.at(0)), ElementsAre("L_update", "PV_update"));
}

TEST(Online, AMaskOfTwoPartsIsOneComposite) {
  const Composite composite = rule("online").apply(samples::biased_scores(true), {"Mx_update"}).composites.at(0);
  EXPECT_THAT(composite.mediators, ElementsAre("E"));
  EXPECT_THAT(followers_of(composite), ElementsAre("L_update", "PV_update"));
}

TEST(Online, AMinimumLeadsAsWell) {
  Nest nest = samples::inlined_softmax_sum(-1);
  nest.statements[0].value = number(samples::infinity());
  nest.statements[1].reduction = ReductionOp::min;
  const Composite composite = rule("online").apply(nest, {"Mx_update"}).composites.at(0);
  EXPECT_EQ(composite.followers[0].correction.str({}, {}), "(r * select((m_old == m_new), 1, exp(((m_old - m_new) * -1))))");
}

TEST(Online, AThresholdKeepsTheMaximumUntilTermsWouldGrowBeyondIt) {
  const Composite composite = rule("online").apply(samples::scores_softmax_values(), {"Mx_update", "8"}).composites.at(0);
  EXPECT_EQ(composite.threshold, 8);
  const auto held = [&](double m_old, double m_new) {
    return evaluate(
        composite.held, [](int) { return 0.0; }, [](int) { return 0; },
        [&](const std::string& name) { return name == "m_old" ? m_old : m_new; });
  };
  const double inf = samples::infinity(), limit = 8 * std::log(2.0);
  EXPECT_EQ(held(3, 3), 3);
  EXPECT_EQ(held(3, 3 + limit - 1e-4), 3);
  EXPECT_EQ(held(3, 3 + limit + 1e-4), 3 + limit + 1e-4);
  EXPECT_EQ(held(-inf, -5), -5);
  EXPECT_EQ(held(-inf, -inf), -inf);
  EXPECT_TRUE(std::isnan(held(3, std::numeric_limits<double>::quiet_NaN())));
  // Kept, in its new units, when the nest is rewritten.
  const Nest scaled = rule("exp2_scale").apply(samples::scores_softmax_values(), {}).nest;
  const auto again = reprove(scaled, {composite});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].threshold, 8);
  EXPECT_EQ(again[0].held.str({}, {}), "select((((m_new - m_old) * 1) <= 8), m_old, m_new)");
}

TEST(Online, AQuotientByAScaledReciprocalIsFreeOfTheReferenceToo) {
  Nest nest = samples::scores_softmax_values();
  samples::value_of(nest, "Mx_init") = number(-1e30);  // so sums may be tiny
  const Nest scaled = rule("reciprocal").apply(nest, {}).nest;
  ASSERT_THAT(value_text(scaled, "O"), HasSubstr("select"));
  EXPECT_TRUE(may_stay_behind(nest, "Mx_update"));
  EXPECT_TRUE(may_stay_behind(scaled, "Mx_update"));
  Nest other = scaled;  // a choice by the sum itself
  samples::value_of(other, "O") =
      ScalarExpr::make(ScalarOp::select, {ScalarExpr::make(ScalarOp::lt, {read(1), number(0x1p-64)}), number(1), number(2)});
  EXPECT_FALSE(may_stay_behind(other, "Mx_update"));
}

TEST(Online, AMinimumStaysBehindAsWell) {
  Nest nest = samples::inlined_softmax_sum(-1);
  nest.statements[0].value = number(samples::infinity());
  nest.statements[1].reduction = ReductionOp::min;
  const Composite composite = rule("online").apply(nest, {"Mx_update", "2"}).composites.at(0);
  EXPECT_EQ(composite.held.str({}, {}), "select((((m_new - m_old) * -1.4426950408889634) <= 2), m_old, m_new)");
}

TEST(FixedExtremum, BoundedScoresNeedNoMaximum) {
  const Nest nest = samples::limited_scores();
  ASSERT_THAT(targets_of(nest, "fixed_extremum"), ElementsAre("Mx_update"));
  const Nest fixed = rule("fixed_extremum").apply(nest, {"Mx_update"}).nest;
  EXPECT_EQ(fixed.find_statement("Mx_update"), nullptr);
  EXPECT_EQ(fixed.find_tensor("Mx"), nullptr);
  // The largest term is exp(20 - 20), the least one exp(-40) = 2^-58: normal.
  EXPECT_EQ(value_text(fixed, "E"), "exp((S - 20))");
  EXPECT_EQ(value_text(fixed, "lse"), "(20 + log(L))");
  EXPECT_TRUE(targets_of(fixed, "online").empty());
}

TEST(FixedExtremum, ANumberTakesThePlaceOfTheMaximumAndItsFactors) {
  const Nest scaled = rule("exp2_scale").apply(samples::limited_scores(), {}).nest;
  const Nest factored = rule("factor_extremum").apply(scaled, {"Mx_update"}).nest;
  const Nest fixed = rule("fixed_extremum").apply(factored, {"Mx_update"}).nest;
  EXPECT_EQ(value_text(fixed, "S"), "tanh((T / scale))");
  EXPECT_THAT(value_text(fixed, "E"), testing::MatchesRegex("exp2\\(\\(\\(S \\* \\(scale \\* 1.44.*\\)\\) - 28\\.85.*\\)\\)"));
}

TEST(FixedExtremum, LargeTermsHangBelowTheirBound) {
  // 50 log2 e = 72.1: the least term is 2^-100, the largest 2^44.3.
  const Nest fixed = rule("fixed_extremum").apply(samples::limited_scores(50), {"Mx_update"}).nest;
  EXPECT_EQ(value_text(fixed, "E"), "exp((S - 19.314718055994536))");
}

TEST(FixedExtremum, ValuesOfHalfPrecisionLeaveLessRoom) {
  Nest nest = samples::limited_scores(8);
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "V") tensor.type = ElementType::f16;
  }
  samples::value_of(nest, "PV_update") =
      ScalarExpr::make(ScalarOp::mul, {read(0), ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16))});
  ASSERT_NO_THROW(validate(nest));
  EXPECT_THAT(targets_of(nest, "fixed_extremum"), ElementsAre("Mx_update"));
  nest.scalars[0].maximum = 11;
  EXPECT_TRUE(targets_of(nest, "fixed_extremum").empty());
}

TEST(KeepResult, ReadersUseACopyAndTheResultIsStoredFromIt) {
  const Nest nest = samples::late_division_norm(TensorRole::output);
  EXPECT_THAT(targets_of(nest, "keep_result"), ElementsAre("mean"));
  const Nest kept = rule("keep_result").apply(nest, {"mean"}).nest;
  EXPECT_EQ(value_text(kept, "mean_store"), "mean_kept");
  EXPECT_EQ(kept.statement("mean_store").write.tensor, "mean");
  EXPECT_EQ(value_text(kept, "squares_update"), "((x - mean_kept) * (x - mean_kept))");
  EXPECT_TRUE(targets_of(kept, "keep_result").empty());
  EXPECT_TRUE(targets_of(samples::late_division_norm(), "keep_result").empty()) << "the mean is no result";
}

/// A sum of all elements, and what is made of each once it is known: no block could keep them that long.
TEST(KeepResult, WhatWaitsForAllElementsReadsTheResult) {
  const Nest nest =
      samples::NestBuilder("shares", {{"M", 4}, {"N", 5}})
          .tensor("x", TensorRole::input, {"M", "N"})
          .tensor("twice", TensorRole::output, {"M", "N"})
          .tensor("total", TensorRole::temporary, {})
          .tensor("out", TensorRole::output, {"M", "N"})
          .statement("twice[i, j] : 0 <= i < M and 0 <= j < N", "twice[i, j]", {"x[i, j]"}, read(0) * number(2))
          .statement("total_init[]", "total[]", {}, number(0))
          .statement("total[i, j] : 0 <= i < M and 0 <= j < N", "total[]", {"twice[i, j]"}, read(0), ReductionOp::add)
          .statement("out[i, j] : 0 <= i < M and 0 <= j < N", "out[i, j]", {"twice[i, j]", "total[]"}, read(0) * read(1))
          .build();
  const Nest kept = rule("keep_result").apply(nest, {"twice"}).nest;
  ASSERT_NO_THROW(validate(kept));
  EXPECT_EQ(value_text(kept, "total"), "twice_kept");
  EXPECT_EQ(value_text(kept, "out"), "(twice * total)");
}

TEST(Recompute, ReadersComputeTheValueAndItNeedsNoPlace) {
  EXPECT_THAT(targets_of(samples::softmax(), "recompute"), ElementsAre("E"));
  const Nest nest = rule("recompute").apply(samples::softmax(), {"E"}).nest;
  ASSERT_NO_THROW(validate(nest));
  EXPECT_EQ(value_text(nest, "L_update"), "exp((x - Mx))");
  EXPECT_EQ(value_text(nest, "y"), "(exp((x - Mx)) / L)");
  EXPECT_EQ(nest.find_tensor("E"), nullptr);
}

TEST(Recompute, AStepOfALongerDefinitionIsComputedByIt) {
  const Nest nest = samples::NestBuilder("steps", {{"N", 5}})
                        .tensor("x", TensorRole::input, {"N"})
                        .tensor("t", TensorRole::temporary, {"N"})
                        .tensor("out", TensorRole::output, {"N"})
                        .statement("t[n] : 0 <= n < N", "t[n]", {"x[n]"}, read(0) * number(2))
                        .statement("out[n] : 0 <= n < N", "out[n]", {"t[n]", "x[n]"}, read(0) - read(1))
                        .build();
  const Nest once = rule("recompute").apply(nest, {"t"}).nest;
  EXPECT_EQ(once.find_tensor("t"), nullptr);
  EXPECT_TRUE(once.statement("out").value.equals(read(1) * number(2) - read(0)) ||
              once.statement("out").value.equals(read(0) * number(2) - read(0)))
      << describe(once);
}

/// out[c, n] = x[c, n] u[n] with u[n] = t[n] / s, s = sum over n of t[n] and t[n] = x[0, n] / 2 + x[1, n]: a value of each pixel, for its channels.
Nest weighed_channels(const std::string& channels, bool of_functions = false) {
  const ScalarExpr sum = read(0) * number(0.5) + read(1);
  return samples::NestBuilder("weighed", {{"N", 5}})
      .tensor("x", TensorRole::input, {channels, "N"})
      .tensor("t", TensorRole::temporary, {"N"})
      .tensor("s", TensorRole::temporary, {"1"})
      .tensor("u", TensorRole::temporary, {"N"})
      .tensor("out", TensorRole::output, {channels, "N"})
      .statement("t[n] : 0 <= n < N", "t[n]", {"x[0, n]", "x[1, n]"}, of_functions ? ScalarExpr::make(ScalarOp::exp, {sum}) : sum)
      .statement("s_init[z] : z = 0", "s[z]", {}, number(0))
      .statement("s[z, n] : z = 0 and 0 <= n < N", "s[z]", {"t[n]"}, read(0), ReductionOp::add)
      .statement("u[n] : 0 <= n < N", "u[n]", {"t[n]", "s[0]"}, read(0) / read(1))
      .statement("out[c, n] : 0 <= n < N and 0 <= c < " + channels, "out[c, n]", {"x[c, n]", "u[n]", "t[n]"},
                 read(0) * read(1) + read(2))
      .build();
}

TEST(Recompute, AFewPointsComputeASlightValueEachForItself) {
  EXPECT_THAT(targets_of(weighed_channels("3"), "recompute"), testing::UnorderedElementsAre("t", "u"));
  Nest nest = weighed_channels("3");
  for (const char* value : {"t", "u"}) nest = rule("recompute").apply(nest, {value}).nest;
  ASSERT_NO_THROW(validate(nest));
  EXPECT_EQ(nest.find_tensor("t"), nullptr);
  EXPECT_EQ(nest.find_tensor("u"), nullptr);
  EXPECT_EQ(value_text(nest, "out"), "((x * (((x * 0.5) + x) / s)) + ((x * 0.5) + x))");
  EXPECT_THAT(targets_of(weighed_channels("8"), "recompute"), testing::IsEmpty()) << "eight points would compute it";
  EXPECT_THAT(targets_of(weighed_channels("3", true), "recompute"), testing::Not(testing::Contains("t")))
      << "exponentials are slow";
}

TEST(Recompute, WhatIsStoredIn16BitsIsRoundedWhereItIsComputed) {
  Nest nest = samples::softmax();
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "E") tensor.type = ElementType::f16;
  }
  samples::value_of(nest, "E") = ScalarExpr::cast(ElementType::f16, samples::value_of(nest, "E"));
  for (const char* reader : {"L_update", "y"}) {
    ScalarExpr& value = samples::value_of(nest, reader);
    value = value.rewrite([](const ScalarExpr& node) {
      return node.op() == ScalarOp::read && node.ordinal() == 0 ? ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16))
                                                                : node;
    });
  }
  ASSERT_NO_THROW(validate(nest));
  const Nest after = rule("recompute").apply(nest, {"E"}).nest;
  EXPECT_EQ(value_text(after, "L_update"), "f32(f16(exp((x - Mx))))");
}

TEST(Recompute, ASumOfAFewTermsIsAddedUpWhereItIsRead) {
  EXPECT_THAT(targets_of(samples::nearest_points("2"), "recompute"), ElementsAre("apart"));
  const Nest nest = rule("recompute").apply(samples::nearest_points("2"), {"apart"}).nest;
  ASSERT_NO_THROW(validate(nest));
  EXPECT_EQ(value_text(nest, "to"), "(((x - y) * (x - y)) + ((x - y) * (x - y)))");
  EXPECT_EQ(nest.statement("to").reads.size(), 4U);
  EXPECT_EQ(isl_text(nest.statement("to").reads[2].relation.range()), "[B, N, M, C] -> { x[i0, i1, 1] }");
  EXPECT_EQ(nest.find_tensor("apart"), nullptr);
  EXPECT_EQ(nest.find_statement("start"), nullptr);
  // A product may be -0, which 0 + -0 is not.
  Nest products = samples::nearest_points("2");
  samples::value_of(products, "apart") = samples::value_of(products, "apart").rewrite([](const ScalarExpr& node) {
    return node.op() == ScalarOp::sub ? node.args()[0] : node;
  });
  EXPECT_EQ(value_text(rule("recompute").apply(products, {"apart"}).nest, "to"), "((x * x) + (x * x))");
  samples::value_of(products, "apart") = read(0) * read(1);
  EXPECT_EQ(value_text(rule("recompute").apply(products, {"apart"}).nest, "to"), "((0 + (x * y)) + (x * y))");
}

TEST(Recompute, ASumOfAFewTermsOfItsOwnIsAddedUpByItsOnlyReader) {
  EXPECT_THAT(targets_of(samples::weighed_steps(), "recompute"), ElementsAre("steps"));
  const Nest nest = rule("recompute").apply(samples::weighed_steps(), {"steps"}).nest;
  ASSERT_NO_THROW(validate(nest));
  EXPECT_EQ(nest.find_tensor("steps"), nullptr);
  EXPECT_EQ(nest.statement("loss").reads.size(), 7U);
  EXPECT_TRUE(targets_of(samples::weighed_steps("5"), "recompute").empty()) << "too many terms";
  const Nest twice = samples::weighed_steps("3", true);
  EXPECT_TRUE(targets_of(twice, "recompute").empty()) << "each reader would read all channels again";
}

TEST(Recompute, ADefinitionAddsUpSumsOfItsOwn) {
  EXPECT_THAT(targets_of(samples::turned_vectors(), "recompute"), ElementsAre("ahead", "back"));
  Nest nest = samples::turned_vectors();
  for (const char* sum : {"ahead", "back"}) nest = rule("recompute").apply(nest, {sum}).nest;
  ASSERT_NO_THROW(validate(nest));
  EXPECT_EQ(nest.statements.size(), 1U);
  EXPECT_EQ(value_text(nest, "out"), "(((((0 + (u * x)) + (u * x)) + (u * x)) * 2) + (((0 + (u * y)) + (u * y)) + (u * y)))");
  EXPECT_EQ(isl_text(nest.statement("out").reads[2].relation.range()), "[N] -> { u[i0, i1, 1] }");
  EXPECT_TRUE(targets_of(samples::turned_vectors("5"), "recompute").empty()) << "too many terms";
  EXPECT_THAT(targets_of(samples::turned_vectors("3", true), "recompute"), ElementsAre("back")) << "it would be added up twice";
  // A definition of many of them is long enough.
  Nest longer = samples::turned_vectors();
  ScalarExpr& value = samples::value_of(longer, "out");
  for (int k = 3; k < 130; ++k) value = ScalarExpr::make(ScalarOp::mul, {value, samples::number(k)});
  EXPECT_TRUE(targets_of(longer, "recompute").empty());
}

TEST(Recompute, ADistanceMayBeReadForEachOfAFewAxesAndByADefinitionBetween) {
  EXPECT_THAT(targets_of(samples::pulling_points(), "recompute"), ElementsAre("sum"));
  const Nest between = rule("recompute").apply(samples::pulling_points(), {"sum"}).nest;
  ASSERT_NO_THROW(validate(between));
  EXPECT_THAT(targets_of(between, "recompute"), ElementsAre("apart"));
  const Nest nest = rule("recompute").apply(between, {"apart"}).nest;
  ASSERT_NO_THROW(validate(nest));
  EXPECT_EQ(nest.find_tensor("sum"), nullptr);
  EXPECT_EQ(nest.find_tensor("apart"), nullptr);
  EXPECT_EQ(nest.statement("energy").reads.size(), 6U) << "three coordinates of both points";
  EXPECT_EQ(nest.statement("force").reads.size(), 8U);
}

TEST(Recompute, ASumOfTermsThatHaveAnotherSumInThemIsAddedUpWhole) {
  Nest nest = samples::nearest_segments();
  for (const char* statement : {"dot", "share", "apart"}) {
    EXPECT_THAT(targets_of(nest, "recompute"), ::testing::Contains(statement));
    nest = rule("recompute").apply(nest, {statement}).nest;
    ASSERT_NO_THROW(validate(nest));
  }
  EXPECT_TRUE(std::none_of(nest.tensors.begin(), nest.tensors.end(),
                           [](const Tensor& tensor) { return tensor.role == TensorRole::temporary; }));
  EXPECT_EQ(nest.statement("out").reads.size(), 6U);
}

TEST(Moments, MeanAndVarianceAreOneComposite) {
  const RuleResult result = rule("moments").apply(samples::row_norm(), {"mean_update"});
  const Composite& composite = result.composites.at(0);
  EXPECT_TRUE(composite.mediators.empty());
  EXPECT_THAT(followers_of(composite), ElementsAre("variance_update"));
  EXPECT_EQ(composite.view.str({}, {}), "(m * (n_total / n))");
}

TEST(Moments, ADivisionBetweenTheSumsIsSeenThrough) {
  const RuleResult result = rule("moments").apply(samples::late_division_norm(), {"total_update"});
  EXPECT_EQ(value_text(result.nest, "squares_update"), "((x - (total / f32(index))) * (x - (total / f32(index))))");
  EXPECT_NE(result.nest.find_statement("mean"), nullptr) << "the result reads it still";
}

TEST(Moments, AMeanThatIsAResultIsSeenThroughAndKept) {
  const RuleResult result = rule("moments").apply(samples::late_division_norm(TensorRole::output), {"total_update"});
  EXPECT_THAT(followers_of(result.composites.at(0)), ElementsAre("squares_update"));
  EXPECT_NE(result.nest.find_statement("mean"), nullptr);
}

TEST(Moments, PointsMayRunOverSeveralDims) {
  for (const char* places : {"S", "3", "N"}) {
    const Nest nest = samples::channel_norm(places);
    EXPECT_THAT(targets_of(nest, "moments"), ElementsAre("total_update")) << places;
    const Composite composite = rule("moments").apply(nest, {"total_update"}).composites.at(0);
    EXPECT_THAT(followers_of(composite), ElementsAre("squares_update"));
    EXPECT_EQ(composite.view.str({}, {}), "(m * (n_total / n))");
  }
  const Composite composite = rule("moments").apply(samples::channel_norm("3"), {"total_update"}).composites.at(0);
  EXPECT_THAT(composite.followers[0].correction.str({}, {}), HasSubstr("n_total")) << "of both sizes, one of them a number";
}

/// The number of points as a product of integers: that of both dims is one, that of one dim twice is none.
TEST(Moments, PointsMayBeCountedByAProductOfSizes) {
  for (const int second : {1, 0}) {
    Nest nest = samples::channel_norm();
    const ScalarExpr count = ScalarExpr::make(ScalarOp::mul, {ScalarExpr::index(0), ScalarExpr::index(second)});
    for (Statement& statement : nest.statements) {
      if (statement.name == "mean") statement.value = read(0) / ScalarExpr::cast(ElementType::f32, count);
    }
    EXPECT_EQ(targets_of(nest, "moments").size(), static_cast<std::size_t>(second));
  }
}

TEST(Moments, AMeanOfOneDimIsNotThatOfAllPoints) {
  Nest nest = samples::channel_norm();
  for (Statement& statement : nest.statements) {
    if (statement.name == "mean") statement.value = read(0) / ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  }
  EXPECT_TRUE(targets_of(nest, "moments").empty());
}

TEST(Moments, PartsAlongAnyReducedDimHaveTheirOwnMean) {
  for (const char* dim : {"n", "s"}) {
    const RuleResult result = rule("split_reduction").apply(samples::channel_norm(), {"total_update", dim, "p", "2"});
    EXPECT_NE(result.nest.find_statement("squares_update_combine"), nullptr);
    EXPECT_THAT(followers_of(result.composites.at(0)), ElementsAre("squares_update_part")) << dim;
  }
}

TEST(Moments, PartialSumsOfSquaresDoNotCountAllPoints) {
  const Nest split = rule("split_reduction").apply(samples::row_norm(), {"variance_update", "k", "p", "3"}).nest;
  EXPECT_TRUE(targets_of(split, "moments").empty());
}

TEST(DeferFactor, LeavesAFactorThatVaries) {
  EXPECT_TRUE(targets_of(samples::matmul(), "defer_factor").empty());
  EXPECT_THAT(targets_of(samples::row_norm(), "defer_factor"), ElementsAre("mean_update", "variance_update"));
  const Nest nest = rule("defer_factor").apply(samples::row_norm(), {"mean_update"}).nest;
  EXPECT_EQ(value_text(nest, "mean_update"), "x");
  EXPECT_EQ(value_text(nest, "mean_update_scale"), "(mean_sum / f32(index))");
}

TEST(NeutralTerms, AMaskBecomesTheDomain) {
  const Nest masked = rule("neutral_terms").apply(samples::scores_softmax_values(Mask::select), {}).nest;
  const Nest expected = samples::scores_softmax_values(Mask::domain);
  for (const Statement& statement : expected.statements)
    EXPECT_TRUE(same_domain(masked, expected, statement.name)) << statement.name;
  EXPECT_EQ(value_text(masked, "S"), value_text(expected, "S"));
  EXPECT_TRUE(targets_of(masked, "neutral_terms").empty());
  EXPECT_TRUE(targets_of(samples::scores_softmax_values(), "neutral_terms").empty());
}

TEST(Exp2Scale, TheFactorJoinsTheScaleOfTheScores) {
  const Nest nest = rule("exp2_scale").apply(samples::scores_softmax_values(), {}).nest;
  EXPECT_EQ(value_text(nest, "S"), "(QK * (scale * 1.4426950408889634))");
  EXPECT_EQ(value_text(nest, "P"), "exp2((S - Mx))");
  EXPECT_EQ(value_text(nest, "Mx_update"), "S");
  EXPECT_TRUE(targets_of(nest, "exp2_scale").empty());
}

TEST(Exp2Scale, ScoresWithOtherUsesKeepTheirScale) {
  Nest nest = samples::scores_softmax_values();
  nest.tensors[4].role = TensorRole::output;
  nest = rule("exp2_scale").apply(nest, {}).nest;
  EXPECT_EQ(value_text(nest, "S"), "(QK * scale)");
  EXPECT_EQ(value_text(nest, "P"), "exp2(((S - Mx) * 1.4426950408889634))");
}

/// biased_scores with biases of f16: their values leave room for a factor.
Nest moderately_biased_scores() {
  Nest nest = samples::biased_scores();
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "B" || tensor.name == "T") tensor.type = ElementType::f16;
  }
  const auto wide = [](int k) { return ScalarExpr::cast(ElementType::f32, read(k, ElementType::f16)); };
  ScalarExpr& score = samples::value_of(nest, "S");
  score = score.rewrite(
      [&](const ScalarExpr& node) { return node.op() == ScalarOp::read && node.ordinal() != 1 ? wide(node.ordinal()) : node; });
  return nest;
}

TEST(Exp2Scale, SumsTakeTheFactorInTermByTerm) {
  Nest nest = moderately_biased_scores();
  std::erase_if(nest.statements, [](const Statement& s) { return s.name == "lse"; });
  nest = rule("exp2_scale").apply(nest, {}).nest;
  EXPECT_EQ(value_text(nest, "S"),
            "(((f32(T) * (scale * 1.4426950408889634)) + (select((abs(slope) <= 1.2379400392853803e+27), (slope * "
            "1.4426950408889634), slope) * f32(index))) + (f32(B) * 1.4426950408889634))");
  EXPECT_EQ(value_text(nest, "E"), "exp2((S - Mx))");
}

TEST(Exp2Scale, ReadersOfTheMaximumDivideTheFactorOut) {
  Nest nest = moderately_biased_scores();
  samples::value_of(nest, "S") = ScalarExpr::cast(ElementType::f32, read(2, ElementType::f16));
  samples::value_of(nest, "S") = ScalarExpr::make(ScalarOp::mul, {samples::value_of(nest, "S"), number(0.5)});
  nest = rule("exp2_scale").apply(nest, {}).nest;
  EXPECT_EQ(value_text(nest, "S"), "(f32(B) * 0.7213475204444817)");
  EXPECT_EQ(value_text(nest, "lse"), "((Mx * 0.6931471805599453) + log(L))");
}

TEST(Exp2Scale, InputsWithoutRoomAreNotScaled) {
  const Nest nest = rule("exp2_scale").apply(samples::biased_scores(), {}).nest;
  EXPECT_EQ(value_text(nest, "S"), "(((T * scale) + (slope * f32(index))) + B)");
  EXPECT_EQ(value_text(nest, "E"), "exp2(((S - Mx) * 1.4426950408889634))");
  EXPECT_EQ(value_text(nest, "lse"), "(Mx + log(L))");
}

TEST(Exp2Scale, AMaskOfTheLowestNumberStaysFinite) {
  Nest nest = samples::scores_softmax_values(Mask::select);
  ScalarExpr& score = samples::value_of(nest, "S");
  score = score.with_args({score.args()[0], score.args()[1], number(std::numeric_limits<float>::lowest())});
  nest = rule("exp2_scale").apply(nest, {}).nest;
  EXPECT_EQ(value_text(nest, "S"), "select((index <= index), (QK * (scale * 1.4426950408889634)), -3.4028234663852886e+38)");
}

TEST(Exp2Scale, TheBoundOfCappedScoresTakesItIn) {
  const Nest nest = rule("exp2_scale").apply(samples::capped_scores(), {}).nest;
  EXPECT_EQ(value_text(nest, "S"), "((scale * 1.4426950408889634) * tanh((T / scale)))");
  EXPECT_EQ(value_text(nest, "E"), "exp2((S - Mx))");
}

TEST(Exp2Scale, AMaximumThatEveryElementReadsOtherwiseKeepsItsScale) {
  Nest nest = samples::biased_scores();
  Statement& out = nest.statements[8];  // O[i, d] += Mx[i]: as many points as elements of O
  ASSERT_EQ(out.name, "O");
  out.reads.push_back({"Mx", parse_map("[R, C, D, P] -> { O[i, d] -> Mx[i] }", "test")});
  out.value = samples::operator+(out.value, read(2));
  nest = rule("exp2_scale").apply(nest, {}).nest;
  EXPECT_EQ(value_text(nest, "E"), "exp2(((S - Mx) * 1.4426950408889634))");
  EXPECT_EQ(value_text(nest, "lse"), "(Mx + log(L))");
}

TEST(Exp2Scale, AConstantFactorTakesItIn) {
  const Nest nest = rule("exp2_scale").apply(samples::inlined_softmax_sum(0.5), {}).nest;
  EXPECT_EQ(value_text(nest, "L_update"), "exp2(((S - Mx) * 0.7213475204444817))");
}

/// What simplify makes of a value over the inputs a (f32, read 0) and h (f16, read 1).
std::string simplified(const ScalarExpr& value) {
  const Nest nest = samples::NestBuilder("one", {{"N", 4}})
                        .tensor("a", TensorRole::input, {"N"})
                        .tensor("h", TensorRole::input, {"N"}, ElementType::f16)
                        .tensor("b", TensorRole::output, {"N"})
                        .statement("B[i] : 0 <= i < N", "b[i]", {"a[i]", "h[i]"}, value)
                        .build();
  return targets_of(nest, "simplify").empty() ? "(unchanged)" : value_text(rule("simplify").apply(nest, {}).nest, "B");
}

TEST(Simplify, AppliesIdentities) {
  using samples::apply;
  using samples::operator*;
  using samples::operator+;
  using samples::operator-;
  using samples::operator/;
  const auto select = [](const ScalarExpr& c, const ScalarExpr& a, const ScalarExpr& b) {
    return ScalarExpr::make(ScalarOp::select, {c, a, b});
  };
  EXPECT_EQ(simplified(read(0) * number(1) + number(0)), "a");
  EXPECT_EQ(simplified(read(0) / number(8)), "(a * 0.125)");
  EXPECT_EQ(simplified(read(0) / number(3)), "(unchanged)");
  EXPECT_EQ(simplified(read(0) * number(0)), "(unchanged)");
  EXPECT_EQ(simplified(apply(ScalarOp::neg, apply(ScalarOp::neg, read(0)))), "a");
  EXPECT_EQ(simplified(ScalarExpr::make(ScalarOp::max, {read(0), number(-samples::infinity())})), "a");
  EXPECT_EQ(simplified(select(ScalarExpr::make(ScalarOp::lt, {number(1), number(2)}), read(0), number(5))), "a");
  EXPECT_EQ(simplified(read(0) + apply(ScalarOp::sqrt, number(16)) * number(0.5)), "(a + 2)");
  const ScalarExpr half = read(1, ElementType::f16);
  const ScalarExpr round_trip = ScalarExpr::cast(ElementType::f16, ScalarExpr::cast(ElementType::f32, half));
  EXPECT_EQ(simplified(ScalarExpr::cast(ElementType::f32, round_trip)), "f32(h)");
  const ScalarExpr rounding = ScalarExpr::cast(ElementType::f32, ScalarExpr::cast(ElementType::f16, read(0)));
  EXPECT_EQ(simplified(rounding), "(unchanged)");
}

TEST(Simplify, AnIndexThatIsNeverNegativeIsTheLargerOneOf0) {
  const auto count = [](const std::string& condition, ScalarOp op) {
    const Nest nest =
        samples::NestBuilder("count", {{"N", 5}})
            .context(condition)
            .tensor("b", TensorRole::output, {})
            .statement("B[]", "b[]", {},
                       ScalarExpr::cast(ElementType::f32,
                                        ScalarExpr::make(op, {ScalarExpr::index(0), ScalarExpr::constant(0, ElementType::i32)})),
                       std::nullopt, {"N - 3"})
            .build();
    return targets_of(nest, "simplify").empty() ? "(unchanged)" : value_text(rule("simplify").apply(nest, {}).nest, "B");
  };
  EXPECT_EQ(count("N >= 3", ScalarOp::max), "f32(index)");
  EXPECT_EQ(count("N >= 3", ScalarOp::min), "0");
  EXPECT_EQ(count("N >= 1", ScalarOp::max), "(unchanged)");
}

/// A temporary of its own elements, which others read (a banded solve), is no elementwise one: nobody could compute it again.
TEST(Algebra, ATemporaryMadeOfItselfIsNotElementwise) {
  const std::string row = "0 <= i < N";
  for (const bool by_another : {false, true}) {
    samples::NestBuilder builder("solve", {{"N", 9}});
    builder.tensor("w", TensorRole::input, {"N"})
        .tensor("d", TensorRole::temporary, {"N + 1"})
        .tensor("e", TensorRole::temporary, {"N"})
        .tensor("x", TensorRole::output, {"N"});
    builder.statement("E[i, s] : s = 0 and " + row, "e[i]", {by_another ? "d[i]" : "w[i]"}, read(0));
    builder.statement("D[i, s] : s = 1 and " + row, "d[i + 1]", {by_another ? "e[i]" : "d[i]", "w[i]"}, read(0) * read(1))
        .join_last();
    Nest nest = builder.statement("X[i] : " + row, "x[i]", {"d[i + 1]", "w[i]"}, read(0) * read(1)).build();
    EXPECT_FALSE(is_elementwise_temporary(nest, "d"));
    EXPECT_EQ(is_elementwise_temporary(nest, "e"), !by_another);
    for (const Rule& each : rules()) each.find(nest);
  }
}

TEST(FewTerms, WhatADomainLeavesOutIsNoValue) {
  const isl::set gap = parse_set("[N] -> { S[i, e] : 0 <= i < N and (e = 0 or 2 <= e <= 3) }", "test");
  EXPECT_EQ(few_values(gap, {1}), (std::vector<std::vector<std::int64_t>>{{0}, {2}, {3}}));
}

TEST(Simplify, ReadsCopiesAtTheirSource) {
  const Nest nest = rule("simplify").apply(samples::copied_twice(), {}).nest;
  EXPECT_EQ(value_text(nest, "Y"), "(x + x)");
  EXPECT_TRUE(nest.statement("Y").reads.at(0).relation.is_equal(parse_map("[R, C] -> { Y[i, j] -> x[i, j] }", "test")));
  EXPECT_EQ(nest.statements.size(), 1U) << "nobody reads the copies";
  EXPECT_TRUE(targets_of(nest, "simplify").empty());
}

TEST(Simplify, KeepsOtherCopies) {
  const auto simplifies = [](const Nest& nest) { return !targets_of(nest, "simplify").empty(); };
  Nest returned = samples::copied_twice();
  for (Tensor& tensor : returned.tensors) {
    if (tensor.name != "x") tensor.role = TensorRole::output;
  }
  EXPECT_FALSE(simplifies(returned)) << "results are no temporaries";
  // What is copied is written again before the copy is read.
  const auto again = [](const std::string& written) {
    return samples::NestBuilder("again", {{"N", 4}})
        .tensor("x", TensorRole::input, {"N"})
        .tensor("s", TensorRole::temporary, {"N"})
        .tensor("other", TensorRole::temporary, {"N"})
        .tensor("t", TensorRole::temporary, {"N"})
        .tensor("y", TensorRole::output, {"N"})
        .statement("S[i] : 0 <= i < N", "s[i]", {"x[i]"}, read(0) + number(1))
        .statement("T[i] : 0 <= i < N", "t[i]", {"s[i]"}, read(0))
        .statement("S_again[i] : 0 <= i < N", written + "[i]", {"x[i]"}, read(0) * number(2))
        .statement("Y[i] : 0 <= i < N", "y[i]", {"t[i]", "s[i]", "other[i]"}, read(0) + read(1) + read(2))
        .build();
  };
  EXPECT_FALSE(simplifies(again("s")));
  EXPECT_TRUE(simplifies(again("other")));
  // The last of several elements that are written to one place.
  const Nest last = samples::NestBuilder("last", {{"N", 4}})
                        .tensor("x", TensorRole::input, {"N"})
                        .tensor("t", TensorRole::temporary, {"1"})
                        .tensor("y", TensorRole::output, {"N"})
                        .statement("T[i] : 0 <= i < N", "t[0]", {"x[i]"}, read(0))
                        .statement("Y[i] : 0 <= i < N", "y[i]", {"t[0]"}, read(0) + number(1))
                        .build();
  EXPECT_FALSE(simplifies(last));
}

TEST(SplitReduction, APlainSumGetsPartsAndACombineStep) {
  const RuleResult result = rule("split_reduction").apply(samples::matmul(), {"C_update", "k", "p", "16"});
  EXPECT_TRUE(result.reassociation);
  EXPECT_TRUE(
      result.nest.statement("C_update_part")
          .domain.is_equal(parse_set(
              "[M, N, K] -> { C_update_part[i, j, p, k] : 0 <= i < M and 0 <= j < N and 0 <= k < K and 16p <= k < 16p + 16 }",
              "test")));
  EXPECT_EQ(result.nest.statement("C_update_combine").reduction, ReductionOp::add);
  EXPECT_EQ(shape_at(result.nest.tensor("C_part"), {{"M", 5}, {"N", 4}, {"K", 33}}), (std::vector<std::int64_t>{3, 5, 4}));
}

TEST(SplitReduction, ACompositeSplitsAsAWhole) {
  const RuleResult result = rule("split_reduction").apply(samples::scores_softmax_values(), {"Mx_update", "j", "p", "64"});
  ASSERT_EQ(result.composites.size(), 2U);
  EXPECT_EQ(result.composites[0].lead, "Mx_update_part");
  EXPECT_THAT(followers_of(result.composites[0]), ElementsAre("L_update_part", "PV_update_part"));
  EXPECT_EQ(result.composites[1].lead, "Mx_update_combine");
  EXPECT_THAT(followers_of(result.composites[1]), ElementsAre("L_update_combine", "PV_update_combine"));
  EXPECT_EQ(value_text(result.nest, "P"), "exp((S - max(Mx_part, -3.4028234663852886e+38)))");
}

TEST(SplitReduction, MomentsOfPartsAreCentredOnTheirOwnMean) {
  const RuleResult result = rule("split_reduction").apply(samples::row_norm(), {"mean_update", "k", "p", "64"});
  ASSERT_EQ(result.composites.size(), 1U);
  EXPECT_EQ(result.composites[0].lead, "mean_update_part");
  EXPECT_EQ(value_text(result.nest, "mean_update_combine"), "(mean_part / f32(index))");
}

}  // namespace
}  // namespace nestor
