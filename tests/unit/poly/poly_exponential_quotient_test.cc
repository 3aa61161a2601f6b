// A term of a softmax over the sum of its own row is at most 1, which ranges allow twice of for rounding, once in each part of the quotient.
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/algebra_nests.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using samples::number;
using samples::read;

ValueRange quotient_of(const Nest& nest, const std::string& statement = "y") {
  return range_of(nest, nest.statement(statement), nest.statement(statement).value);
}

bool is_weight(const ValueRange& range) { return range.low == 0 && range.high == 4; }

TEST(ExponentialQuotient, AWeightIsAtMostOne) {
  const ValueRange range = quotient_of(samples::softmax());
  EXPECT_TRUE(is_weight(range)) << range.low << " to " << range.high;
  EXPECT_FALSE(range.infinite());
  EXPECT_TRUE(range.nan) << "scores may be NaN";
  EXPECT_TRUE(is_weight(quotient_of(samples::normalised_attention(), "P")));
}

TEST(ExponentialQuotient, TheSumIsThatOfTheSameRow) {
  for (const char* element : {"L[0]", "L[(R - 1 - i)]", "L[(i + 1)]"}) {
    Nest nest = samples::softmax();
    for (Statement& statement : nest.statements) {
      if (statement.name == "y")
        statement.reads[1].relation = parse_map(std::string("[R, C] -> { y[i, j] -> ") + element + " }", "test");
    }
    EXPECT_FALSE(is_weight(quotient_of(nest))) << element;
  }
}

TEST(ExponentialQuotient, TheSumTakesAllTermsOfTheRow) {
  Nest part = samples::softmax();
  for (Statement& statement : part.statements) {
    if (statement.name == "L_update")
      statement.domain = parse_set("[R, C] -> { L_update[i, j] : 0 <= i < R and 0 <= j < C and j <= i }", "test");
  }
  EXPECT_FALSE(is_weight(quotient_of(part)));
  Nest bounded = samples::softmax();
  samples::value_of(bounded, "Mx_init") = number(0);
  EXPECT_FALSE(is_weight(quotient_of(bounded))) << "the largest term may be less than 1";
}

TEST(ExponentialQuotient, TheTermIsOneOfThem) {
  Nest inverse = samples::softmax();
  samples::value_of(inverse, "y") = samples::operator/(read(1), read(0));
  EXPECT_FALSE(is_weight(quotient_of(inverse)));
  Nest scaled = samples::softmax();
  samples::value_of(scaled, "y") = samples::operator/(read(0), samples::operator*(read(1), number(0.001)));
  EXPECT_FALSE(is_weight(quotient_of(scaled)));
  Nest other = samples::softmax();
  for (Statement& statement : other.statements) {
    if (statement.name == "y") statement.reads[0] = {"x", parse_map("[R, C] -> { y[i, j] -> x[i, j] }", "test")};
  }
  EXPECT_FALSE(is_weight(quotient_of(other))) << "no exponential";
}

/// Statement y stands before what L is summed up by: it divides by 0.
Nest early_quotient() {
  Nest nest = samples::softmax();
  const auto place = [&](const std::string& name) {
    return std::find_if(nest.statements.begin(), nest.statements.end(), [&](const Statement& s) { return s.name == name; });
  };
  std::rotate(place("L_update"), place("y"), place("y") + 1);
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  validate(nest);
  return nest;
}

TEST(ExponentialQuotient, TheSumIsComplete) {
  const Nest nest = early_quotient();
  EXPECT_FALSE(is_weight(quotient_of(nest)));
  EXPECT_TRUE(range_of(nest, "L").has_zero()) << "which y reads";
}

TEST(ExponentialQuotient, AnExtremumIsWhatItStartsFromUntilItIsComplete) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  const auto rows = [&](bool early, bool again) {
    samples::NestBuilder nest("rows", {{"R", 3}, {"C", 4}});
    nest.tensor("x", TensorRole::input, {"R", "C"}).tensor("m", TensorRole::temporary, {"R"});
    nest.tensor("y", TensorRole::output, {"R"}).statement("m_init[i] : " + row, "m[i]", {}, number(-samples::infinity()));
    if (early) nest.statement("y[i] : " + row, "y[i]", {"m[i]"}, read(0));
    nest.statement("m[i, j] : " + pair, "m[i]", {"x[i, j]"}, samples::apply(ScalarOp::tanh, read(0)), ReductionOp::max);
    if (again) nest.statement("m_again[i] : " + row + " and i >= 1", "m[i]", {}, number(-samples::infinity()));
    if (!early) nest.statement("y[i] : " + row, "y[i]", {"m[i]"}, read(0));
    return nest.build();
  };
  EXPECT_FALSE(quotient_of(rows(false, false)).infinite());
  EXPECT_TRUE(quotient_of(rows(true, false)).infinite());
  EXPECT_TRUE(quotient_of(rows(false, true)).infinite());
}

/// Terms of two softmaxes, in f16, over each other's sum: what is known of either asks for the other.
TEST(ExponentialQuotient, SumsThatDivideEachOthersTerms) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  samples::NestBuilder nest("each_other", {{"R", 3}, {"C", 4}});
  for (const std::string n : {"1", "2"}) {
    nest.tensor("x" + n, TensorRole::input, {"R", "C"}).tensor("y" + n, TensorRole::output, {"R", "C"}, ElementType::f16);
    for (const char* of_row : {"m", "l"}) nest.tensor(of_row + n, TensorRole::temporary, {"R"});
    nest.statement("m" + n + "_init[i] : " + row, "m" + n + "[i]", {}, number(-samples::infinity()))
        .statement("m" + n + "[i, j] : " + pair, "m" + n + "[i]", {"x" + n + "[i, j]"}, read(0), ReductionOp::max)
        .statement("l" + n + "_init[i] : " + row, "l" + n + "[i]", {}, number(0))
        .statement("l" + n + "[i, j] : " + pair, "l" + n + "[i]", {"x" + n + "[i, j]", "m" + n + "[i]"},
                   samples::apply(ScalarOp::exp, samples::operator-(read(0), read(1))), ReductionOp::add);
  }
  for (const auto& [n, other] : {std::pair<std::string, std::string>{"1", "2"}, {"2", "1"}}) {
    const ScalarExpr term = samples::apply(ScalarOp::exp, samples::operator-(read(0), read(1)));
    nest.statement("y" + n + "[i, j] : " + pair, "y" + n + "[i, j]", {"x" + n + "[i, j]", "m" + n + "[i]", "l" + other + "[i]"},
                   ScalarExpr::cast(ElementType::f16, samples::operator/(term, read(2))));
  }
  EXPECT_FALSE(is_weight(quotient_of(nest.build(), "y1")));
  EXPECT_TRUE(range_of(nest.build(), "l1").low > 0);
}

}  // namespace
}  // namespace nestor
