// Rule finite_masks: which masks it takes, and that rows keep their values, whatever their scores are.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/masked_scores.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::HasSubstr;

Nest without_masked(const Nest& nest) { return rule("finite_masks").apply(nest, {"s"}).nest; }

std::string refusal(const Nest& nest) {
  try {
    without_masked(nest);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Elements of "out" that the second nest has otherwise, for scores from far below the mask's number to far above, infinities and NaN, and any
/// finite values.
int different(const Nest& before, const Nest& after, int inputs) {
  std::mt19937_64 random(11);
  const double numbers[] = {1, -1000.5, -1001, -2000, 800, -999, infinity(), -infinity(), std::nan(""), -3e9};
  int found = 0;
  for (int k = 0; k < inputs; ++k) {
    const Sizes sizes{{"N", 1 + static_cast<std::int64_t>(random() % 6)}, {"D", 2}};
    Memory expected = Interpreter::random_inputs(before, sizes, k + 1);
    const std::size_t kinds = 1 + random() % std::size(numbers);
    for (const Index& index : indices_of(expected.at("x"))) expected.at("x").at(index) = numbers[random() % kinds];
    Memory actual = expected;
    Interpreter(before, sizes).run(expected);
    Interpreter(after, sizes).run(actual);
    for (const auto& [index, value] : expected.at("out")) found += same_value(actual.at("out").at(index), value) ? 0 : 1;
  }
  return found;
}

TEST(FiniteMasks, WhatIsHiddenIsAddedUpWhereItCounts) {
  const Nest nest = without_masked(masked_scores());
  validate(nest);
  for (const char* name : {"s", "top", "p", "total", "sum"})
    EXPECT_THAT(isl_text(nest.statement(name).domain), HasSubstr("j <= i")) << name;
  EXPECT_EQ(nest.statement("s").value.op(), ScalarOp::read);
  EXPECT_EQ(nest.statement("top_init").value.op(), ScalarOp::select) << "the last row hides nothing";
  EXPECT_NE(nest.find_statement("sum_hidden"), nullptr);
  EXPECT_EQ(nest.find_statement("total_hidden"), nullptr) << "a number of equal weights";
  EXPECT_TRUE(rule("finite_masks").find(nest).empty()) << "once";
  EXPECT_THAT(rule("finite_masks").finite(masked_scores()), ::testing::ElementsAre("v"));
}

TEST(FiniteMasks, RowsAreWhatTheyWere) {
  for (const double hidden : {-1e9, -1000.0, -1e30}) {
    for (const bool quotients : {false, true}) {
      for (const ScalarExpr& seen : {sees_before(), sees_near(), ScalarExpr::make(ScalarOp::logical_not, {sees_near()})}) {
        const Nest nest = masked_scores({.seen = seen, .hidden = hidden, .quotients = quotients});
        EXPECT_EQ(different(nest, without_masked(nest), 150), 0) << hidden << quotients;
      }
    }
  }
  const ScalarExpr near = ScalarExpr::make(
      ScalarOp::logical_and, {sees_before(), ScalarExpr::make(ScalarOp::le, {ScalarExpr::index(1), ScalarExpr::index(2)})});
  const Nest window = masked_scores({.seen = near, .window = "j + 2"});
  EXPECT_EQ(different(window, without_masked(window), 100), 0) << "an index that fits 32 bits, as all do";
  // Rows that see nothing have the mean of the values.
  const Nest empty = masked_scores({.seen = sees_near(), .window = "i + 1 - floor(i / 2)"});
  EXPECT_EQ(different(empty, without_masked(empty), 100), 0);
}

/// Masks as frameworks write them: of ones and zeros, of booleans, of distances.
TEST(FiniteMasks, ConditionsMayCompareWhatOthersChoose) {
  const auto make = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  const ScalarExpr ones = ScalarExpr::make(ScalarOp::select, {sees_before(), number(1), number(0)});
  const ScalarExpr apart = make(ScalarOp::sub, ScalarExpr::index(1), ScalarExpr::index(0));
  const ScalarExpr spellings[] = {
      ScalarExpr::make(ScalarOp::logical_not, {make(ScalarOp::eq, ones, number(0))}),
      make(ScalarOp::lt, number(0.5), ones),
      ScalarExpr::cast(ElementType::boolean, ones),
      make(ScalarOp::eq, ScalarExpr::cast(ElementType::f32, sees_before()), number(1)),
      make(ScalarOp::le, ScalarExpr::constant(0, ElementType::i32), apart),
      make(ScalarOp::lt, number(0), number(1) - make(ScalarOp::mul, number(1) - ones, number(1))),
      make(ScalarOp::logical_and, sees_before(),
           make(ScalarOp::le, ScalarExpr::make(ScalarOp::abs, {apart}), ScalarExpr::constant(2, ElementType::i32))),
      ScalarExpr::make(ScalarOp::select, {sees_before(), ScalarExpr::constant(1, ElementType::boolean),
                                          ScalarExpr::constant(0, ElementType::boolean)})};
  for (const ScalarExpr& seen : spellings) {
    const Nest nest = masked_scores({.seen = seen}), after = without_masked(nest);
    EXPECT_THAT(isl_text(after.statement("sum").domain), HasSubstr("j <= i"));
    EXPECT_EQ(different(nest, after, 60), 0);
  }
}

/// -inf that is added hides what a select would: scores there must be finite, which the rule says.
TEST(FiniteMasks, AddedInfinitiesAreForNeutralTerms) {
  const Nest nest = masked_scores({.hidden = -infinity(), .added = true});
  const Nest after = rule("neutral_terms").apply(nest, {}).nest;
  for (const char* name : {"s", "top", "total", "sum"})
    EXPECT_THAT(isl_text(after.statement(name).domain), HasSubstr("j <= i")) << name;
  EXPECT_THAT(rule("neutral_terms").finite(nest), ::testing::UnorderedElementsAre("x", "v"));
  EXPECT_THAT(rule("neutral_terms").finite(masked_scores({.hidden = -infinity()})), ::testing::ElementsAre("v"));
  EXPECT_TRUE(rule("neutral_terms").find(masked_scores({.hidden = -1e9, .added = true})).empty());
  EXPECT_THAT(refusal(masked_scores({.hidden = -1e9, .added = true})), HasSubstr("one large negative number"));
  for (const ScalarExpr& mask :
       {ScalarExpr::make(ScalarOp::select, {sees_before(), number(0), number(-infinity())}),
        apply(ScalarOp::log, ScalarExpr::make(ScalarOp::select, {sees_before(), number(1), number(0)}))}) {
    const Nest products = with_statement(masked_attention_scores(), "s", [&](Statement& s) { s.value = read(0) + mask; });
    ASSERT_EQ(rule("neutral_terms").find(products).size(), 1U) << "scores are no value of a row";
    EXPECT_THAT(isl_text(rule("neutral_terms").apply(products, {}).nest.statement("dot").domain), HasSubstr("j <= i"));
    EXPECT_THAT(rule("neutral_terms").finite(products), ::testing::UnorderedElementsAre("dot", "v"));
  }
  const Nest quotient = with_statement(nest, "s", [](Statement& s) { s.value = number(1) / read(0) + s.value.args()[1]; });
  EXPECT_TRUE(rule("neutral_terms").find(quotient).empty()) << "1/0 is +inf of what is finite";
}

TEST(FiniteMasks, WeightsThatAreTheSameNumberForAllRowsMustBeZero) {
  const Nest bare = without_masked(masked_scores({.weight = apply(ScalarOp::exp, read(0))}));
  validate(bare);
  EXPECT_EQ(bare.find_statement("sum_hidden"), nullptr) << "exp(-1e9) is 0";
  EXPECT_THAT(isl_text(bare.statement("sum").domain), HasSubstr("j <= i"));
  EXPECT_THAT(refusal(masked_scores({.weight = read(0)})), HasSubstr("no factor of total is free of j and vanishes"));
}

/// A soft cap keeps scores within 50: no weight of what is hidden is above 0, and the rule leaves what it does of -inf.
TEST(FiniteMasks, ScoresWithinARangeNeedNoGuard) {
  const auto capped = [](double hidden, const ScalarExpr& seen, const std::string& window = "i - 2") {
    return with_statement(masked_scores({.seen = seen, .hidden = hidden, .window = window}), "s", [](Statement& s) {
      s.value = s.value.rewrite(
          [](const ScalarExpr& node) { return node.op() == ScalarOp::read ? number(50) * apply(ScalarOp::tanh, node) : node; });
    });
  };
  const Nest before = capped(-1e9, sees_before()), after = without_masked(before);
  EXPECT_EQ(after.find_statement("sum_hidden"), nullptr);
  EXPECT_EQ(after.find_statement("total_whole"), nullptr);
  EXPECT_TRUE(after.statement("top_init").value.is_constant(-infinity()));
  EXPECT_EQ(different(before, after, 100), 0);
  const Nest empty = capped(-1e9, sees_near(), "i + 1 - floor(i / 2)");
  EXPECT_NE(without_masked(empty).find_statement("sum_hidden"), nullptr) << "rows that see nothing";
  EXPECT_EQ(different(empty, without_masked(empty), 100), 0);
}

TEST(FiniteMasks, AMaximumStartsFromWhatItMakesOfTheNumber) {
  const Nest nest =
      with_statement(masked_scores({.hidden = -1000}), "top", [](Statement& top) { top.value = top.value * number(0.5); });
  EXPECT_EQ(different(nest, without_masked(nest), 100), 0);
}

TEST(FiniteMasks, OthersStayAsTheyAre) {
  EXPECT_THAT(refusal(masked_scores({.hidden = -infinity()})), HasSubstr("one large negative number"));
  EXPECT_THAT(refusal(masked_scores({.hidden = -10})), HasSubstr("one large negative number"));
  EXPECT_THAT(refusal(masked_scores({.seen = ScalarExpr::make(ScalarOp::lt, {number(0), read(0)})})),
              HasSubstr("one large negative number"))
      << "hidden by data";
  const ScalarExpr further = ScalarExpr::make(ScalarOp::lt, {ScalarExpr::index(2), ScalarExpr::index(0)});
  Nest two = masked_scores();
  Statement scores = two.statement("s");
  scores.value = ScalarExpr::make(ScalarOp::select, {further, scores.value, number(-1e8)});
  replace_statement(two, scores);
  EXPECT_THAT(refusal(two), HasSubstr("one large negative number")) << "two numbers";
  Nest read_elsewhere = masked_scores();
  read_elsewhere.tensors.push_back({"scores", ElementType::f32, TensorRole::output, read_elsewhere.tensor("s").shape, {}});
  Statement copy = renamed(read_elsewhere.statement("s"), "copy");
  copy.write = {"scores", copy.write.relation.set_range_tuple("scores")};
  copy.reads = {{"s", copy.write.relation.set_range_tuple("s")}};
  copy.indices.clear();
  copy.value = read(0);
  insert_statement(read_elsewhere, position_of(read_elsewhere, "s") + 1, copy);
  EXPECT_THAT(refusal(read_elsewhere), HasSubstr("copy needs what is masked"));
  EXPECT_THAT(refusal(with_statement(masked_scores(), "top", [](Statement& top) { top.reduction = ReductionOp::min; })),
              HasSubstr("top is no sum or maximum"));
}

}  // namespace
}  // namespace nestor
