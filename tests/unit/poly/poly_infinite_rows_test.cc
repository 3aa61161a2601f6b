// Rows of nothing but -inf in rule online: who would take sums of 0 for the definition's NaN, and where that one becomes NaN.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/polynomial.h"
#include "support/nests/hidden_rows.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

/// out[i, d] = sum over j of factor v[j, d], where the factor reads s[i, j], m[i], l[i], hit[i, j] and other[i, j] as 0 to 4: gradients of a
/// cross entropy, for one.
Nest gradients(const ScalarExpr& factor) {
  const std::string row = "0 <= i < R", points = row + " and 0 <= j < K", element = row + " and 0 <= d < D";
  return NestBuilder("gradients", {{"R", 5}, {"K", 7}, {"D", 4}})
      .tensor("s", TensorRole::input, {"R", "K"})
      .tensor("hit", TensorRole::input, {"R", "K"})
      .tensor("other", TensorRole::input, {"R", "K"})
      .tensor("v", TensorRole::input, {"K", "D"}, ElementType::f16)
      .tensor("m", TensorRole::temporary, {"R"})
      .tensor("l", TensorRole::temporary, {"R"})
      .tensor("out", TensorRole::output, {"R", "D"})
      .statement("m_init[i] : " + row, "m[i]", {}, number(-infinity()))
      .statement("m_max[i, j] : " + points, "m[i]", {"s[i, j]"}, read(0), ReductionOp::max)
      .statement("l_init[i] : " + row, "l[i]", {}, number(0))
      .statement("l_sum[i, j] : " + points, "l[i]", {"s[i, j]", "m[i]"}, apply(ScalarOp::exp, read(0) - read(1)),
                 ReductionOp::add)
      .statement("out_init[i, d] : " + element, "out[i, d]", {}, number(0))
      .statement("out_sum[i, d, j] : " + points + " and 0 <= d < D", "out[i, d]",
                 {"s[i, j]", "m[i]", "l[i]", "hit[i, j]", "other[i, j]", "v[j, d]"},
                 factor * ScalarExpr::cast(ElementType::f32, read(5, ElementType::f16)), ReductionOp::add)
      .build();
}

ScalarExpr power(const ScalarExpr& term) { return apply(ScalarOp::exp, term - read(1)); }

/// Does the sum have a mark, m - m?
bool is_marked(const Statement& sum) {
  bool marked = false;
  sum.value.visit([&](const ScalarExpr& node) {
    const bool difference = node.op() == ScalarOp::sub && node.args()[0].equals(node.args()[1]);
    marked = marked || (difference && reads_tensor(sum, node, "m"));
  });
  return marked;
}

Nest after_online(const ScalarExpr& factor) { return rule("online").apply(gradients(factor), {"m_max"}).nest; }

TEST(InfiniteRows, AnExponentialOfTheRowsOwnTermsIsNaNWithoutAMark) {
  for (const ScalarExpr& factor : {power(read(0)) / read(2) - read(3), (power(read(0)) - read(3)) * read(2)}) {
    const Nest nest = after_online(factor);
    EXPECT_FALSE(is_marked(nest.statement("out_sum")));
    EXPECT_EQ(rule("materialize_factor").find(nest).size(), 1U) << "a product that tensor cores can take";
  }
}

TEST(InfiniteRows, WhatIsNoSuchTermIsMarkedWithinItsFactor) {
  // Other terms may be finite; one that is kept finite is 0, and so is its product with a sum of 0.
  const ScalarExpr kept = ScalarExpr::make(ScalarOp::max, {read(1), number(-3.4028234663852886e+38)});
  const std::vector<ScalarExpr> factors{power(read(4)) * read(2) - read(3), apply(ScalarOp::exp, read(0) - kept) * read(2),
                                        read(3) * read(2)};
  for (const ScalarExpr& factor : factors) {
    const Nest nest = after_online(factor);
    EXPECT_TRUE(is_marked(nest.statement("out_sum")));
    EXPECT_EQ(rule("materialize_factor").find(nest).size(), 1U) << "the mark is a part of the factor";
  }
}

TEST(InfiniteRows, ASumWhoseTermsASelectHidesIsNoNaN) {
  const auto logarithm = [](const ScalarExpr& term) {
    const std::string row = "0 <= i < R", points = row + " and 0 <= j < K";
    return NestBuilder("logarithm", {{"R", 5}, {"K", 7}})
        .tensor("s", TensorRole::input, {"R", "K"})
        .tensor("hidden", TensorRole::input, {"R"}, ElementType::boolean)
        .tensor("m", TensorRole::temporary, {"R"})
        .tensor("l", TensorRole::temporary, {"R"})
        .tensor("out", TensorRole::output, {"R"})
        .statement("m_init[i] : " + row, "m[i]", {}, number(-infinity()))
        .statement("m_max[i, j] : " + points, "m[i]", {"s[i, j]"}, read(0), ReductionOp::max)
        .statement("l_init[i] : " + row, "l[i]", {}, number(0))
        .statement("l_sum[i, j] : " + points, "l[i]", {"s[i, j]", "m[i]", "hidden[i]"}, term, ReductionOp::add)
        .statement("out[i] : " + row, "out[i]", {"m[i]", "l[i]"}, read(0) + apply(ScalarOp::log, read(1)))
        .build();
  };
  const ScalarExpr power = apply(ScalarOp::exp, read(0) - read(1)), hidden = read(2, ElementType::boolean);
  EXPECT_EQ(rule("online").find(logarithm(power)).size(), 1U);
  EXPECT_EQ(rule("online").find(logarithm(ScalarExpr::make(ScalarOp::select, {hidden, number(0), power}))).size(), 0U)
      << "where all scores are -inf the sum is 0, and its logarithm is -inf";
}

TEST(InfiniteRows, WhatAFiniteMaskHidesIsNotInSuchARow) {
  EXPECT_EQ(rule("online").find(hidden_weights(-1e30)).size(), 1U)
      << "where m is -inf, no place is hidden, and all terms are NaN";
  EXPECT_EQ(rule("online").find(hidden_weights(-infinity())).size(), 0U) << "terms that are hidden are 0, others NaN";
  EXPECT_EQ(rule("online").find(hidden_weights(-1e30, "c[0]")).size(), 0U) << "another condition";
}

TEST(InfiniteRows, AnExtremumThatIsKeptFiniteLeadsItsSums) {
  const ScalarExpr m = read(0), infinite = ScalarExpr::make(ScalarOp::eq, {m, number(-infinity())});
  const auto choice = [](const ScalarExpr& condition, const ScalarExpr& yes, const ScalarExpr& no) {
    return ScalarExpr::make(ScalarOp::select, {condition, yes, no});
  };
  for (const ScalarExpr& safe :
       {choice(infinite, number(0), m), choice(ScalarExpr::make(ScalarOp::logical_not, {infinite}), m, number(3))}) {
    const Nest nest = safe_rows(safe);
    ASSERT_EQ(rule("online").find(nest).size(), 1U);
    const Nest found = rule("online").apply(nest, {"m_max"}).nest;
    EXPECT_EQ(found.find_statement("safe"), nullptr) << "it is computed where it is read";
    EXPECT_EQ(differences(nest, found, {{"R", 5}, {"K", 7}}, 3), 0);
  }
  const ScalarExpr finite = ScalarExpr::make(ScalarOp::lt, {number(-infinity()), m});
  for (const ScalarExpr& other : {choice(infinite, number(-infinity()), m), choice(finite, m, number(0)),
                                  choice(infinite, m, number(0)), choice(infinite, number(0), m + m)})
    EXPECT_EQ(rule("online").find(safe_rows(other)).size(), 0U);
}

}  // namespace
}  // namespace nestor
