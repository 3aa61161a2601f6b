// Rule reroll_terms: which terms of a definition become a sum, over which points, and what keeps them apart.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/error_text.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/unrolled_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;

Nest rerolled(const Nest& nest) {
  Nest result = rule("reroll_terms").apply(nest, {"out"}).nest;
  validate(result);
  for (const Sizes& sizes : {Sizes{{"Y", 1}, {"Z", 1}}, Sizes{{"Y", 4}, {"Z", 3}}, Sizes{{"Y", 5}, {"Z", 6}}})
    EXPECT_EQ(differences(nest, result, sizes, 5), 0);
  return result;
}

std::string refusal(const Nest& nest) {
  return test::message_of([&] { rule("reroll_terms").apply(nest, {"out"}); });
}

constexpr const char* kRefused =
    "rule reroll_terms does not apply to out: it adds no three terms that differ by constants of a box alone, and are 0 at some "
    "points";

TEST(RerollTerms, GuardedTapsAreASum) {
  const Nest nest = rerolled(filter_by_taps());
  EXPECT_THAT(statement_names(nest), ElementsAre("out_taps_init", "out_taps_sum", "out"));
  const isl::set points = parse_set(
      "[Y, Z] -> { out_taps_sum[y, z, s, t] : 0 <= y < Y and 0 <= z < Z and 0 <= s < 3 and 0 <= t < 3 and 0 <= y + s - 1 < Y and "
      "0 <= z + t "
      "- 1 < Z }",
      "test");
  const Statement& sum = nest.statement("out_taps_sum");
  EXPECT_TRUE(sum.domain.intersect_params(nest.context).is_equal(points.intersect_params(nest.context))) << describe(nest);
  EXPECT_EQ(sum.reduction, ReductionOp::add);
  EXPECT_TRUE(rule("reroll_terms").find(nest).empty()) << "once";
  EXPECT_EQ(rule("reroll_terms").find(filter_by_taps()).size(), 1U);
}

TEST(RerollTerms, OtherTermsStay) {
  EXPECT_EQ(refusal(filter_by_taps({{0, 0}, {0, 1}})), kRefused) << "few";
  EXPECT_EQ(refusal(filter_by_taps({{0, 0}, {0, 1}, {1, 0}, {2, 2}})), kRefused) << "no box";
  const Nest before = filter_by_taps({{0, 0}, {0, 1}, {0, 2}});
  EXPECT_EQ(rule("reroll_terms").find(before).size(), 1U);
  EXPECT_EQ(refusal(with_statement(before, "p1", [](Statement& part) { part.value = part.value * number(2); })), kRefused);
  EXPECT_EQ(refusal(with_statement(before, "p1_zero", [](Statement& part) { part.value = number(1); })), kRefused)
      << "not of zeros";
  EXPECT_EQ(refusal(with_statement(before, "out", [](Statement& out) { out.value = out.value * read(2); })), kRefused)
      << "a term is read for itself";
  EXPECT_EQ(refusal(with_statement(before, "out",
                                   [](Statement& out) { out.value = apply(ScalarOp::abs, read(0)) + read(1) + read(2); })),
            kRefused)
      << "two are left";
}

}  // namespace
}  // namespace nestor
