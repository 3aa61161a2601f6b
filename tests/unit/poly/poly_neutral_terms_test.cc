// Rule neutral_terms: what stands beside a mask may be infinite or NaN by itself, whatever the inputs are.
#include "poly/algebra/all_rules.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace nestor {
namespace {

using namespace samples;

const Sizes kSizes{{"N", 5}};

ScalarExpr seen_or(const ScalarExpr& value, double otherwise) {
  const ScalarExpr seen = ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(0), ScalarExpr::index(1)});
  return ScalarExpr::make(ScalarOp::select, {seen, value, number(otherwise)});
}

/// s_ij = x_j for j <= i - 2, else -inf, so that the first rows see nothing; m_i its maximum; out[i] = sum_j `term`, whose values are those of
/// `reads`, and j and i - 2.
Nest masked_sum(const std::vector<std::string>& reads, const ScalarExpr& term) {
  const std::string row = "0 <= i < N", cell = row + " and 0 <= j < N";
  const std::vector<std::string> places{"j", "i - 2"};
  NestBuilder nest("masked", {{"N", 5}});
  nest.tensor("x", TensorRole::input, {"N"}).tensor("t", TensorRole::input, {"N"}).tensor("s", TensorRole::temporary, {"N", "N"});
  nest.tensor("m", TensorRole::temporary, {"N"}).tensor("out", TensorRole::output, {"N"});
  nest.statement("s[i, j] : " + cell, "s[i, j]", {"x[j]"}, seen_or(read(0), -infinity()), std::nullopt, places)
      .statement("m_init[i] : " + row, "m[i]", {}, number(-infinity()))
      .statement("m[i, j] : " + cell, "m[i]", {"s[i, j]"}, read(0), ReductionOp::max)
      .statement("o_init[i] : " + row, "out[i]", {}, number(0))
      .statement("o[i, j] : " + cell, "out[i]", reads, term, ReductionOp::add, places);
  return nest.build();
}

/// sum_j exp(s_ij c - m_i c)
Nest multiplied_exponents(const ScalarExpr& factor) {
  return masked_sum({"s[i, j]", "m[i]", "t[i]"}, samples::apply(ScalarOp::exp, read(0) * factor - read(1) * factor));
}

Nest without_neutral_terms(const Nest& nest) { return rule("neutral_terms").apply(nest, {}).nest; }

/// Is the sum's domain smaller then?
bool leaves_terms_out(const Nest& nest) {
  return !rule("neutral_terms").find(nest).empty() &&
         !without_neutral_terms(nest).statement("o").domain.is_equal(nest.statement("o").domain);
}

TEST(NeutralTerms, RowsThatSeeNothingKeepTheirNanWhereTheMaximumIsMultiplied) {
  for (const double factor : {1.0, 2.0, 0.5}) {
    const Nest before = multiplied_exponents(number(factor));
    ASSERT_TRUE(leaves_terms_out(before)) << factor;
    const Nest after = without_neutral_terms(before);
    Memory memory = Interpreter::random_inputs(before, kSizes, 1);
    Interpreter(after, kSizes).run(memory);
    EXPECT_TRUE(std::isnan(memory.at("out").at({1}))) << "sees nothing";
    EXPECT_FALSE(std::isnan(memory.at("out").at({2})));
    EXPECT_EQ(differences(before, after, kSizes, 200), 0) << factor;
  }
  EXPECT_FALSE(leaves_terms_out(multiplied_exponents(read(2)))) << "a factor of either sign";
}

TEST(NeutralTerms, WhatAMaskMultipliesMustBeFiniteOfFiniteInputs) {
  const auto multiplies = [](const ScalarExpr& value) {
    return leaves_terms_out(masked_sum({"m[i]", "x[j]"}, value * seen_or(number(1), 0)));
  };
  EXPECT_TRUE(multiplies(read(1)));
  EXPECT_TRUE(multiplies(samples::apply(ScalarOp::exp, read(1)))) << "an overflow is left out";
  EXPECT_FALSE(multiplies(read(0))) << "a maximum of nothing is infinite";
  EXPECT_FALSE(multiplies(read(1) / read(1)));
  EXPECT_FALSE(multiplies(samples::apply(ScalarOp::sqrt, read(1)))) << "of negative numbers";
  EXPECT_TRUE(multiplies(samples::apply(ScalarOp::sqrt, samples::apply(ScalarOp::abs, read(1)))));
  EXPECT_FALSE(multiplies(samples::apply(ScalarOp::log, samples::apply(ScalarOp::abs, read(1)))));
}

TEST(NeutralTerms, WhatAMaskIsAddedToMustNotBeTheOtherInfinity) {
  const auto adds = [](const ScalarExpr& value) {
    return leaves_terms_out(masked_sum({"m[i]", "x[j]"}, samples::apply(ScalarOp::exp, value + seen_or(number(0), -infinity()))));
  };
  EXPECT_TRUE(adds(read(1)));
  EXPECT_FALSE(adds(read(0))) << "+inf where the row sees one";
  EXPECT_FALSE(adds(number(0) - read(0) * read(0))) << "may be NaN";
  EXPECT_FALSE(adds(samples::apply(ScalarOp::log, read(1))));
}

}  // namespace
}  // namespace nestor
