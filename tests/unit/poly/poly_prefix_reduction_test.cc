// Rule prefix_reduction: which recurrences are reductions of all points before, and what becomes of them.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/nests/prefix_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Nest rewritten(const Nest& nest) {
  const std::vector<RuleMatch> matches = rule("prefix_reduction").find(nest);
  EXPECT_EQ(matches.size(), 1U);
  Nest result = rule("prefix_reduction").apply(nest, matches.front().target).nest;
  validate(result);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {2, 2}, {3, 7}})
    EXPECT_EQ(differences(nest, result, {{"R", rows}, {"C", columns}}, 5), 0) << rows << " x " << columns;
  return result;
}

std::string refusal(const Nest& nest) {
  try {
    rule("prefix_reduction").apply(nest, {"step"});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

const Statement& reduction_of(const Nest& nest) {
  for (const Statement& statement : nest.statements) {
    if (statement.reduction) return statement;
  }
  throw std::runtime_error("no reduction");
}

TEST(PrefixReduction, AFirstElementLikeOthersIsATermOfTheSum) {
  const Nest sums = rewritten(running_values());
  EXPECT_THAT(statement_names(sums), ElementsAre("s_prefix_init", "s_prefix_2", "s_2", "out"));
  const Statement& sum = reduction_of(sums);
  EXPECT_EQ(sum.reduction, ReductionOp::add);
  EXPECT_TRUE(sum.domain.is_equal(
      parse_set("[R, C] -> { s_prefix_2[r, c, k] : 0 <= r < R and 0 <= k <= c < C }", "test").intersect_params(sums.context)));
  // A temporary is the sum itself.
  RunningForm kept;
  kept.role = TensorRole::temporary;
  EXPECT_THAT(statement_names(rewritten(running_values(kept))), ElementsAre("s_init", "s_2", "out"));
}

TEST(PrefixReduction, OperatorsAndDirections) {
  for (const bool backward : {false, true}) {
    for (const ScalarOp op : {ScalarOp::add, ScalarOp::mul, ScalarOp::max, ScalarOp::min}) {
      RunningForm form;
      form.backward = backward;
      form.value = ScalarExpr::make(op, {read(1), read(0)});
      EXPECT_EQ(combiner(*reduction_of(rewritten(running_values(form))).reduction), op);
    }
  }
}

TEST(PrefixReduction, AnotherFirstElementMeetsTheSum) {
  RunningForm given;
  given.first_value = "g[r]";
  EXPECT_THAT(statement_names(rewritten(running_values(given))),
              ElementsAre("s_prefix_init", "s_prefix_2", "s_start", "s_2", "out"));
  RunningForm scaled;
  scaled.value = read(0) + read(1) * number(2);
  EXPECT_THAT(statement_names(rewritten(running_values(scaled))),
              ElementsAre("s_prefix_init", "s_prefix_2", "s_start", "s_2", "out"));
  const Nest before = running_from_zero();
  EXPECT_THAT(statement_names(rewritten(before)), ElementsAre("out_prefix_init", "out_prefix_2", "out_start", "out_2"));
}

TEST(PrefixReduction, TermsMayStandAroundTheElementBefore) {
  RunningForm form;
  form.value = (read(1) * read(2) + read(0)) - read(1) + number(0.5);
  rewritten(running_values(form));
  form.value = read(0) - read(1);
  rewritten(running_values(form));
}

TEST(PrefixReduction, SumsInPlaceTakeWhatWasThere) {
  EXPECT_THAT(statement_names(rewritten(running_in_place())), ElementsAre("s_prefix_init", "s_prefix_2", "s_2", "out"));
  EXPECT_THAT(statement_names(rewritten(running_in_place(TensorRole::temporary))), ElementsAre("s_init", "s_2", "out"));
}

TEST(PrefixReduction, RecurrencesAcrossMemoryAreNotListed) {
  Nest across = running_in_place();
  for (Statement& statement : across.statements) {
    if (statement.name != "step") continue;
    statement.domain = parse_set("[R, C] -> { step[c, r] : 0 <= c < C and 0 <= r < R - 1 }", "test");
    statement.write.relation = parse_map("[R, C] -> { step[c, r] -> s[r + 1, c] }", "test");
    statement.reads[0].relation = parse_map("[R, C] -> { step[c, r] -> s[r, c] }", "test");
    statement.reads[1].relation = statement.write.relation;
  }
  EXPECT_TRUE(rule("prefix_reduction").find(across).empty());
  const Nest sums = rule("prefix_reduction").apply(across, {"step"}).nest;
  EXPECT_EQ(differences(across, sums, {{"R", 4}, {"C", 3}}, 5), 0);
}

TEST(PrefixReduction, OtherRecurrencesStay) {
  const auto of_value = [](const ScalarExpr& value) {
    RunningForm form;
    form.value = value;
    return refusal(running_values(form));
  };
  EXPECT_THAT(of_value(read(0) * number(2) + read(1)), HasSubstr("it does not add to the element before as it is"));
  EXPECT_THAT(of_value(read(0) + read(0)), HasSubstr("it does not add to the element before as it is"));
  EXPECT_THAT(of_value(read(1) - read(0)), HasSubstr("it does not add to the element before as it is"));
  EXPECT_THAT(of_value(apply(ScalarOp::tanh, read(0))), HasSubstr("it is no sum, product or extremum of f32 or i32"));
  RunningForm half;
  half.type = ElementType::f16;
  half.first = read(0, ElementType::f16);
  half.value = ScalarExpr::cast(ElementType::f16, ScalarExpr::cast(ElementType::f32, read(0, ElementType::f16)) +
                                                      ScalarExpr::cast(ElementType::f32, read(1, ElementType::f16)));
  EXPECT_THAT(refusal(running_values(half)), HasSubstr("it is no sum, product or extremum of f32 or i32")) << "each step rounds";
}

/// The nest with another domain of the step, or of what stands before it.
Nest with_domain(Nest nest, const std::string& name, const std::string& domain) {
  for (Statement& statement : nest.statements) {
    if (statement.name == name) statement.domain = parse_set("[R, C] -> { " + name + "[" + domain + " }", "test");
  }
  return nest;
}

TEST(PrefixReduction, EachRowIsOneRunFromOneFirstElement) {
  const Nest in_place = running_in_place();
  const Nest two_runs = with_domain(with_domain(in_place, "copy", "r, c] : 0 <= r < R and 0 <= c < C and c != 2"), "step",
                                    "c, r] : 0 <= r < R and 0 <= c < C - 1 and c != 1 and c != 2");
  EXPECT_THAT(refusal(two_runs), HasSubstr("its elements along that index are no single run"));
  EXPECT_THAT(refusal(with_domain(in_place, "step", "c, r] : 0 <= r < R and 0 <= c < C - 2")),
              HasSubstr("not all elements behind the first ones are its own"))
      << "the last one is a copy";
  Nest turned = in_place;
  for (Statement& statement : turned.statements) {
    // From the last element on: each adds what has been there before.
    if (statement.name != "step") continue;
    statement.write.relation = parse_map("[R, C] -> { step[c, r] -> s[r, C - 1 - c] }", "test");
    statement.reads[0].relation = parse_map("[R, C] -> { step[c, r] -> s[r, C - 2 - c] }", "test");
    statement.reads[1].relation = statement.write.relation;
  }
  EXPECT_THAT(refusal(turned), HasSubstr("it does not run along that index"));
  Nest far = in_place;
  for (Statement& statement : far.statements) {
    if (statement.name == "step")
      statement.reads[0].relation = parse_map("[R, C] -> { step[c, r] -> s[r, c - 1] : c > 0 }", "test");
  }
  EXPECT_THAT(refusal(with_domain(far, "step", "c, r] : 0 <= r < R and 0 < c < C - 1")),
              HasSubstr("it does not read the element before its own along one index"));
}

}  // namespace
}  // namespace nestor
