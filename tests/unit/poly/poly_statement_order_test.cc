// Rules see the order of statements: who reads a sum before it is complete reads what it starts from, whatever its name.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "support/nests/operand_nests.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace nestor {
namespace {

using namespace samples;

/// The nest with a statement right before another one.
Nest with_before(Nest nest, const std::string& moved, const std::string& other) {
  const Statement statement = nest.statement(moved);
  erase_statement(nest, moved);
  insert_statement(nest, position_of(nest, other), statement);
  validate(nest);
  return nest;
}

bool matches(const Nest& nest, const std::string& rule_name) { return !rule(rule_name).find(nest).empty(); }

TEST(StatementOrder, MixedSumsThatAreReadTooEarlyStaySums) {
  const Nest nest = mixed_products(), early = with_before(nest, "out", "mix");
  EXPECT_TRUE(matches(nest, "separate_sums"));
  EXPECT_FALSE(matches(early, "separate_sums")) << "out is 0";
}

TEST(StatementOrder, JoinedSumsStandBehindTheirCopies) {
  const Nest nest = with_before(recurrent_gates(), "su1_init", "sv1");
  const auto found = rule("join_sums").find(nest);
  ASSERT_FALSE(found.empty());
  for (const RuleMatch& match : found) {
    const Nest after = rule("join_sums").apply(nest, match.target).nest;
    EXPECT_NO_THROW(validate(after));
    EXPECT_EQ(differences(nest, after, {{"M", 2}, {"N", 2}, {"K", 3}, {"P", 2}}, 40), 0);
  }
}

/// A softmax's sum that a statement reads in front of it is no part of a composite: that statement sees 0.
TEST(StatementOrder, SumsOfAnOnlineSoftmaxAreReadWhenComplete) {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < C";
  const Nest nest =
      NestBuilder("early", {{"R", 3}, {"C", 4}})
          .tensor("x", TensorRole::input, {"R", "C"})
          .tensor("m", TensorRole::temporary, {"R"})
          .tensor("l", TensorRole::temporary, {"R"})
          .tensor("out", TensorRole::output, {"R"})
          .statement("m_init[i] : " + row, "m[i]", {}, number(-infinity()))
          .statement("m[i, j] : " + pair, "m[i]", {"x[i, j]"}, read(0), ReductionOp::max)
          .statement("l_init[i] : " + row, "l[i]", {}, number(0))
          .statement("l[i, j] : " + pair, "l[i]", {"x[i, j]", "m[i]"}, apply(ScalarOp::exp, read(0) - read(1)), ReductionOp::add)
          .statement("out[i] : " + row, "out[i]", {"m[i]", "l[i]"}, read(0) + apply(ScalarOp::log, read(1)))
          .build();
  EXPECT_TRUE(matches(nest, "online"));
  EXPECT_FALSE(matches(with_before(nest, "out", "l"), "online"));
}

}  // namespace
}  // namespace nestor
