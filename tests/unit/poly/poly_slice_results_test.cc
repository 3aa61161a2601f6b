// Rule slice_results: results that are slices of one product are products of their own.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"
#include "support/nests/sliced_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const Nest& nest, const std::string& statement = "line") {
  try {
    rule("slice_results").apply(nest, {statement});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// How many elements of results the second nest has otherwise, for some inputs.
int other_results(const Nest& before, const Nest& after, const Sizes& sizes) {
  std::mt19937_64 random(7);
  int found = 0;
  for (int k = 0; k < 10; ++k) {
    Memory expected = inputs_with_specials(before, sizes, random), actual = expected;
    Interpreter(before, sizes).run(expected);
    Interpreter(after, sizes).run(actual);
    for (const char* result : {"q", "v", "gate"}) {
      for (const auto& [index, value] : expected.at(result)) found += same_value(actual.at(result).at(index), value) ? 0 : 1;
    }
  }
  return found;
}

TEST(SliceResults, EachResultHasASumOfItsOwn) {
  const Nest before = sliced_results();
  const auto matches = rule("slice_results").find(before);
  ASSERT_EQ(matches.size(), 1U);
  const Nest nest = rule("slice_results").apply(before, matches.front().target).nest;
  validate(nest);
  EXPECT_TRUE(rule("slice_results").find(nest).empty()) << "once";
  std::vector<std::string> order;
  for (const Statement& statement : nest.statements) order.push_back(statement.name);
  EXPECT_THAT(order, ElementsAre("line_init_q", "line_q", "biased_q", "q", "line_init_v", "line_v", "biased_v", "v",
                                 "line_init_gate", "line_gate", "biased_gate", "gate"));
  EXPECT_THAT(isl_text(nest.statement("line_v").reads[1].relation), HasSubstr("w[O + t, k]"));
  EXPECT_THAT(isl_text(nest.statement("line_gate").reads[1].relation), HasSubstr("w[2O + t, k]"));
  EXPECT_THAT(isl_text(nest.statement("v").reads[0].relation), HasSubstr("biased_v[m, o]"));
  EXPECT_EQ(function_text(nest.tensor("line_q").shape[1]), "O");
  EXPECT_EQ(function_text(nest.tensor("line_gate").shape[1]), "64");
  EXPECT_EQ(nest.find_tensor("line"), nullptr);
  for (const Sizes& sizes : {Sizes{{"M", 1}, {"O", 1}, {"K", 1}}, Sizes{{"M", 2}, {"O", 70}, {"K", 4}}})
    EXPECT_EQ(other_results(before, nest, sizes), 0);
}

TEST(SliceResults, ElementsThatNoResultReadsAreNotMade) {
  const Nest before = with_statement(sliced_results("O", "2 O"), "v", [](Statement& v) {
    v.domain = parse_set("[M, O, K] -> { v[m, o] : 0 <= m < M and 32 <= o < O }", "test");
  });
  EXPECT_THAT(refusal(before), HasSubstr("slices of 64 places")) << "32 by default";
}

TEST(SliceResults, OtherResultsStayAsTheyAre) {
  EXPECT_THAT(refusal(sliced_results("1")), HasSubstr("slices of 64 places")) << "they overlap";
  EXPECT_THAT(refusal(sliced_results(), "biased"), HasSubstr("no sum of products"));
  EXPECT_THAT(refusal(matmul(), "C_update"), HasSubstr("no sum of products"));
  const Nest reduced = with_statement(sliced_results(), "q", [](Statement& q) {
    q.reads.push_back({"biased", parse_map("[M, O, K] -> { q[m, o] -> biased[m, o + 1] }", "test")});
    q.value = q.value + ScalarExpr::cast(ElementType::f32, ScalarExpr::read(1, ElementType::f16));
  });
  EXPECT_THAT(refusal(reduced), HasSubstr("each once")) << "two places of a slice";
  const Nest shared = with_statement(sliced_results(), "biased", [](Statement& biased) { biased.group = 1; });
  EXPECT_THAT(refusal(shared), HasSubstr("shares loops"));
}

}  // namespace
}  // namespace nestor
