// Rule leave_out: which reductions leave out a place of their own, and what becomes of them.
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
  const std::vector<RuleMatch> matches = rule("leave_out").find(nest);
  EXPECT_EQ(matches.size(), 1U);
  Nest result = rule("leave_out").apply(nest, {"others"}).nest;
  validate(result);
  for (const auto& [rows, columns] : {std::pair{1, 1}, {2, 2}, {3, 3}, {3, 7}})
    EXPECT_EQ(differences(nest, result, {{"R", rows}, {"C", columns}}, 20), 0) << rows << " x " << columns;
  return result;
}

std::string refusal(const LeftOutForm& form) {
  EXPECT_TRUE(rule("leave_out").find(largest_others(form)).empty());
  try {
    rule("leave_out").apply(largest_others(form), {"others"});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

isl::set domain_of(const Nest& nest, const std::string& name) {
  return nest.statement(name).domain.intersect_params(nest.context);
}

TEST(LeaveOut, AllOthersAreThoseBeforeAndThoseBehind) {
  const Nest sides = rewritten(largest_others());
  EXPECT_THAT(statement_names(sides),
              ElementsAre("others_before_init", "others_before_2", "others_behind_init", "others_behind_2", "others_2", "out"));
  const auto expected = [&](const std::string& text) { return parse_set("[R, C] -> { " + text + " }", "test"); };
  EXPECT_TRUE(
      domain_of(sides, "others_before_2")
          .is_equal(expected("others_before_2[r, c, k] : 0 <= r < R and 0 <= k < c < C").intersect_params(sides.context)));
  EXPECT_TRUE(
      domain_of(sides, "others_behind_2")
          .is_equal(expected("others_behind_2[r, c, k] : 0 <= r < R and 0 <= c < k < C").intersect_params(sides.context)));
}

/// Sums are not made by taking away: infinities and NaN of the place itself stay out.
TEST(LeaveOut, OperatorsAndIntervals) {
  for (const ReductionOp op : {ReductionOp::add, ReductionOp::mul, ReductionOp::max, ReductionOp::min}) {
    for (const char* seen : {"(k < c or k > c)", "(k < c - 1 or k > c + 1)", "(k < c or k > c + 2)"}) {
      LeftOutForm form;
      form.op = op;
      form.seen = seen;
      form.start = neutral_element(op, ElementType::f32);
      rewritten(largest_others(form));
    }
  }
}

TEST(LeaveOut, Refusals) {
  LeftOutForm all, before, follows, started, far;
  all.seen = "0 <= k";
  before.seen = "k < c";
  follows.reads = {"x[r, k]", "x[r, c]"};
  follows.value = read(0) * read(1);
  started.start = 1;
  far.seen = "(k < 2 or k > 4)";
  for (const LeftOutForm& form : {all, before})
    EXPECT_THAT(refusal(form), HasSubstr("its points are not those before a place and those behind it"));
  for (const LeftOutForm& form : {follows, far})
    EXPECT_THAT(refusal(form), HasSubstr("its terms follow the place that they leave out"));
  EXPECT_THAT(refusal(started), HasSubstr("it does not start from the neutral element, alone in its loops"));
}

}  // namespace
}  // namespace nestor
