// A term of a softmax over the sum of its own row is at most 1, which ranges allow twice of for rounding, once in each part of the quotient.
#include "poly/algebra/analysis/range_analysis.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/algebra_nests.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace nestor
