// Rule late_definitions: what is computed from a finished sum waits until it is first needed.
#include "poly/algebra/all_rules.h"
#include "support/nests/algebra_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using samples::number;
using samples::read;
using samples::operator+;
using samples::operator*;
using ::testing::ElementsAre;

std::vector<std::string> order_after(const Nest& nest) {
  return samples::statement_names(rule("late_definitions").apply(nest, {}).nest);
}

bool matches(const Nest& nest) { return !rule("late_definitions").find(nest).empty(); }

TEST(LateDefinitions, ADenominatorGoesBehindTheSumThatSharesItsLoop) {
  const Nest nest = samples::early_denominator();
  ASSERT_EQ(rule("late_definitions").find(nest).size(), 1U);
  EXPECT_THAT(order_after(nest), ElementsAre("W", "L_init", "L_update", "PV_init", "PV_update", "below", "O"));
  const Nest after = rule("late_definitions").apply(nest, {}).nest;
  EXPECT_FALSE(matches(after)) << "once";
  EXPECT_NO_THROW(validate(after));
  EXPECT_LT(after.statement("PV_update").group, after.statement("below").group);
  EXPECT_LT(after.statement("below").group, after.statement("O").group);
}

/// A definition of a definition of the sum: each of them waits for its own reader.
TEST(LateDefinitions, ChainsMoveAsAWhole) {
  Nest nest = samples::early_denominator();
  const Statement below = nest.statement("below");
  Statement root = below;
  root.name = "root";
  root.group = below.group;
  root = samples::NestBuilder("part", {{"R", 4}, {"C", 7}, {"D", 3}})
             .statement("root[i] : 0 <= i < R", "root[i]", {"below[i]"}, samples::apply(ScalarOp::sqrt, read(0)))
             .build()
             .statements[0];
  nest.tensors.push_back(nest.tensor("below"));
  nest.tensors.back().name = "root";
  nest.statements.insert(nest.statements.begin() + 4, root);
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  for (Statement& statement : nest.statements) {
    if (statement.name != "O") continue;
    statement.reads[1] = {"root", statement.reads[1].relation.set_range_tuple("root")};
  }
  ASSERT_NO_THROW(validate(nest));
  EXPECT_THAT(order_after(nest), ElementsAre("W", "L_init", "L_update", "PV_init", "PV_update", "below", "root", "O"));
}

/// The second sum reads the weights through a definition of its own.
TEST(LateDefinitions, SumsShareWhatTheirOperandsAreMadeOf) {
  Nest nest = samples::early_denominator();
  const Statement twice = samples::NestBuilder("part", {{"R", 4}, {"C", 7}, {"D", 3}})
                              .statement("W2[i, j] : 0 <= i < R and 0 <= j < C", "W2[i, j]", {"W[i, j]"}, read(0) * number(2))
                              .build()
                              .statements[0];
  nest.tensors.push_back(nest.tensor("W"));
  nest.tensors.back().name = "W2";
  nest.statements.insert(nest.statements.begin() + 4, twice);
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  for (Statement& statement : nest.statements) {
    if (statement.name == "PV_update") statement.reads[0] = {"W2", statement.reads[0].relation.set_range_tuple("W2")};
  }
  ASSERT_NO_THROW(validate(nest));
  EXPECT_THAT(order_after(nest), ElementsAre("W", "L_init", "L_update", "W2", "PV_init", "PV_update", "below", "O"));
}

/// Scores, how large they are before each of them, levels that come from another product, and what reads both.
Nest sums_beside_levels(const std::string& other_reader = "") {
  const std::string row = "0 <= i < R", pair = row + " and 0 <= j < R", level = row + " and 0 <= p < 8";
  samples::NestBuilder nest("sums_beside_levels", {{"R", 9}});
  nest.tensor("q", TensorRole::input, {"R", "16"}, ElementType::f16)
      .tensor("w", TensorRole::input, {"8", "16"}, ElementType::f16)
      .tensor("near", TensorRole::temporary, {"R", "R"})
      .tensor("raw", TensorRole::temporary, {"R", "R"})
      .tensor("sum", TensorRole::temporary, {"R", "R"})
      .tensor("place", TensorRole::temporary, {"R", "R"})
      .tensor("level", TensorRole::temporary, {"R", "8"})
      .tensor("out", TensorRole::output, {"R", "R"});
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  const ScalarExpr product = wide(0) * wide(1);
  nest.statement("near_init[i, j] : " + pair, "near[i, j]", {}, number(0))
      .statement("near[i, j, e] : " + pair + " and 0 <= e < 16", "near[i, j]", {"q[i, e]", "q[j, e]"}, product, ReductionOp::add)
      .statement("raw[i, j] : " + pair, "raw[i, j]", {"near[i, j]"}, read(0))
      .statement("sum_init[i, j] : " + pair, "sum[i, j]", {}, number(0))
      .statement("sum[i, j, l] : " + pair + " and j <= l < R", "sum[i, j]", {"raw[i, l]"}, read(0) * read(0), ReductionOp::add)
      .statement("place[i, j] : " + pair, "place[i, j]", {"sum[i, j]"}, read(0) * number(2));
  if (!other_reader.empty())
    nest.tensor("other", TensorRole::output, {"R", "R"})
        .statement("other[i, j] : " + pair, "other[i, j]", {other_reader + "[i, j]"}, read(0));
  return nest.statement("level_init[i, p] : " + level, "level[i, p]", {}, number(0))
      .statement("level[i, p, e] : " + level + " and 0 <= e < 16", "level[i, p]", {"q[i, e]", "w[p, e]"}, product,
                 ReductionOp::add)
      .statement("out[i, j] : " + pair + " and j < 8", "out[i, j]", {"place[i, j]", "level[i, j]"}, read(0) * read(1))
      .build();
}

TEST(LateDefinitions, SumsOverRowsOfProductsWaitForOtherProducts) {
  const Nest nest = sums_beside_levels();
  EXPECT_THAT(order_after(nest),
              ElementsAre("near_init", "near", "raw", "level_init", "level", "sum_init", "sum", "place", "out"));
  EXPECT_NO_THROW(validate(rule("late_definitions").apply(nest, {}).nest));
  EXPECT_FALSE(matches(rule("late_definitions").apply(nest, {}).nest)) << "once";
  EXPECT_FALSE(matches(sums_beside_levels("sum"))) << "another one reads the sum";
  EXPECT_FALSE(matches(sums_beside_levels("place"))) << "it is needed at once";
}

TEST(LateDefinitions, OthersStayWhereTheyAre) {
  EXPECT_FALSE(matches(samples::early_denominator(false))) << "the second sum has other operands";
  EXPECT_FALSE(matches(samples::late_division_norm())) << "the second sum reads the mean";
  Nest joined = samples::early_denominator();
  joined.statements[3].group = joined.statements[2].group;  // one loop with the first sum
  EXPECT_FALSE(matches(joined));
  Nest result = samples::early_denominator();
  for (Tensor& tensor : result.tensors) {
    if (tensor.name == "below") tensor.role = TensorRole::output;
  }
  EXPECT_FALSE(matches(result)) << "a result";
}

TEST(LateDefinitions, NothingBetweenMayWriteWhatItReads) {
  Nest nest = samples::early_denominator();
  const Statement again = samples::NestBuilder("part", {{"R", 4}, {"C", 7}, {"D", 3}})
                              .statement("L_again[i] : 0 <= i < R", "L[i]", {}, number(5))
                              .build()
                              .statements[0];
  nest.statements.insert(nest.statements.begin() + 4, again);
  for (std::size_t k = 0; k < nest.statements.size(); ++k) nest.statements[k].group = static_cast<int>(k);
  EXPECT_FALSE(matches(nest));
}

/// Weights and slopes of pairs, then what either makes with values: `interleaved` has both products of pairs first.
Nest two_chains(bool interleaved, bool needs_both = false) {
  const std::string pair = "0 <= i < R and 0 <= j < C", out = "0 <= j < C and 0 <= d < 16";
  samples::NestBuilder builder("chains", {{"R", 4}, {"C", 7}});
  for (const char* input : {"q", "g"}) builder.tensor(input, TensorRole::input, {"R", "16"}, ElementType::f16);
  for (const char* input : {"k", "v"}) builder.tensor(input, TensorRole::input, {"C", "16"}, ElementType::f16);
  for (const char* pairs : {"s", "w", "p", "z"}) builder.tensor(pairs, TensorRole::temporary, {"R", "C"});
  for (const char* output : {"dk", "dv"}) builder.tensor(output, TensorRole::output, {"C", "16"});
  const auto wide = [](int ordinal) { return ScalarExpr::cast(ElementType::f32, read(ordinal, ElementType::f16)); };
  const auto first = [&](const std::string& sum, const std::string& made, const std::string& a, const std::string& b, bool both) {
    builder.statement(sum + "_init[i, j] : " + pair, sum + "[i, j]", {}, number(0))
        .statement(sum + "_sum[i, j, e] : " + pair + " and 0 <= e < 16", sum + "[i, j]", {a + "[i, e]", b + "[j, e]"},
                   wide(0) * wide(1), ReductionOp::add);
    if (both)
      builder.statement(made + "[i, j] : " + pair, made + "[i, j]", {sum + "[i, j]", "w[i, j]"}, number(0.5) * read(0) + read(1));
    else
      builder.statement(made + "[i, j] : " + pair, made + "[i, j]", {sum + "[i, j]"}, number(0.5) * read(0));
  };
  const auto second = [&](const std::string& result, const std::string& made, const std::string& b) {
    builder.statement(result + "_init[j, d] : " + out, result + "[j, d]", {}, number(0))
        .statement(result + "_sum[j, d, i] : " + out + " and 0 <= i < R", result + "[j, d]", {made + "[i, j]", b + "[i, d]"},
                   read(0) * wide(1), ReductionOp::add);
  };
  first("s", "w", "q", "k", false);
  if (!interleaved) second("dv", "w", "g");
  first("p", "z", "g", "v", needs_both);
  second("dk", "z", "q");
  if (interleaved) second("dv", "w", "g");
  return builder.build();
}

TEST(LateDefinitions, AProductWaitsForWhatItIsMadeFor) {
  const Nest nest = two_chains(true);
  ASSERT_EQ(rule("late_definitions").find(nest).size(), 1U);
  EXPECT_THAT(order_after(nest),
              ElementsAre("p_init", "p_sum", "z", "dk_init", "dk_sum", "s_init", "s_sum", "w", "dv_init", "dv_sum"));
  const Nest after = rule("late_definitions").apply(nest, {}).nest;
  EXPECT_FALSE(matches(after)) << "once";
  EXPECT_NO_THROW(validate(after));
}

TEST(LateDefinitions, ChainsThatAreNeighboursStayWhereTheyAre) {
  EXPECT_FALSE(matches(two_chains(false)));
  EXPECT_FALSE(matches(two_chains(true, true))) << "the slopes need the weights";
}

}  // namespace
}  // namespace nestor
