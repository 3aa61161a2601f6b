// Rule reroll_sums: which sums become one, over which points, and what keeps them apart.
#include "poly/algebra/all_rules.h"
#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "support/error.h"
#include "support/nests/nested_sums.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/unrolled_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Nest rerolled(const Nest& nest) {
  Nest result = rule("reroll_sums").apply(nest, {"out"}).nest;
  validate(result);
  for (const Sizes& sizes : {Sizes{{"Y", 1}, {"Z", 1}, {"F", 1}, {"K", 1}}, Sizes{{"Y", 4}, {"Z", 3}, {"F", 2}, {"K", 3}}})
    EXPECT_EQ(differences(nest, result, sizes, 5), 0);
  return result;
}

std::string refusal(const Nest& nest) {
  try {
    rule("reroll_sums").apply(nest, {"out"});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

constexpr const char* kRefused =
    "rule reroll_sums does not apply to out: it adds no sums that are always added together and differ by constants of a box "
    "alone";

bool has_points(const Nest& nest, const std::string& name, const std::string& points) {
  const isl::set expected = parse_set("[Y, Z, F, K] -> { " + name + points + " }", "test").intersect_params(nest.context);
  return nest.statement(name).domain.intersect_params(nest.context).is_equal(expected);
}

TEST(RerollSums, TapsBecomeReducedDims) {
  UnrolledForm form;
  const std::string cell = "0 <= y < Y and 0 <= z < Z and 0 <= f < F and 0 <= k < K and 0 <= s < 2 and 0 <= t < 3";
  for (const bool edges : {false, true}) {
    form.edges = edges;
    const Nest nest = rerolled(unrolled_convolution(form));
    EXPECT_THAT(statement_names(nest), ElementsAre("s1_init", "s1", "out"));
    const std::string inside = edges ? " and 0 <= y + s - 1 < Y and 0 <= z + t - 1 < Z" : "";
    EXPECT_TRUE(has_points(nest, "s1", "[y, z, f, s, t, k] : " + cell + inside)) << describe(nest);
    EXPECT_TRUE(rule("reroll_sums").find(nest).empty()) << "once";
  }
}

TEST(RerollSums, TapsThatCountInsideHaveTermsThere) {
  for (const int seen : {1, 2}) {
    const Nest before = taps_at_edges(seen), nest = rule("reroll_sums").apply(before, {"out"}).nest;
    validate(nest);
    EXPECT_THAT(statement_names(nest), ElementsAre("tap0_init", "tap0", "out"));
    const isl::set points =
        parse_set("[M, O, K] -> { tap0[m, o, t, k] : 0 <= m < M and 0 <= o < O and 0 <= t < 3 and 0 <= k < K and " +
                      std::to_string(seen) + " <= m + t <= M }",
                  "test");
    EXPECT_TRUE(nest.statement("tap0").domain.intersect_params(nest.context).is_equal(points.intersect_params(nest.context)));
    EXPECT_EQ(nest.statement("out").value.op(), ScalarOp::read) << "no select";
    for (const Sizes& sizes : {Sizes{{"M", 1}, {"O", 1}, {"K", 1}}, Sizes{{"M", 5}, {"O", 2}, {"K", 3}}})
      EXPECT_EQ(differences(before, nest, sizes, 20), 0);
  }
  const auto with_other = [](ScalarOp op) {
    return with_statement(taps_at_edges(), "out",
                          [&](Statement& out) { out.value = ScalarExpr::make(op, {out.value, read(1)}); });
  };
  EXPECT_EQ(refusal(with_other(ScalarOp::max)), kRefused) << "the second tap is read without a condition, too";
  EXPECT_EQ(refusal(with_statement(taps_at_edges(), "tap1_init", [](Statement& start) { start.value = number(1); })), kRefused);
}

TEST(RerollSums, ProductsOfOneSumAreItsTaps) {
  UnrolledForm form;
  form.one_sum = true;
  const Nest before = unrolled_convolution(form), nest = rule("reroll_sums").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(differences(before, nest, {{"Y", 4}, {"Z", 3}, {"F", 2}, {"K", 3}}, 5), 0);
  EXPECT_TRUE(has_points(
      nest, "sum", "[y, z, f, s, t, k] : 0 <= y < Y and 0 <= z < Z and 0 <= f < F and 0 <= k < K and 0 <= s < 2 and 0 <= t < 3"))
      << describe(nest);
  form.taps = {{0, 0}, {0, 1}, {1, 0}};
  EXPECT_TRUE(rule("reroll_sums").find(unrolled_convolution(form)).empty()) << "no box";
}

TEST(RerollSums, TheOrderOfTapsDoesNotMatter) {
  UnrolledForm form;
  form.taps = {{2, 1}, {0, 1}, {1, 1}};
  EXPECT_THAT(statement_names(rerolled(unrolled_convolution(form))), ElementsAre("s2_init", "s2", "out"));
  form.taps = {{0, 0}, {0, 2}, {2, 0}, {2, 2}};
  form.edges = false;
  EXPECT_THAT(statement_names(rerolled(unrolled_convolution(form))), ElementsAre("s1_init", "s1", "out")) << "every second one";
  form.type = ElementType::f32;
  form.edges = true;
  form.taps = {{0, 0}, {1, 1}, {2, 2}};
  EXPECT_TRUE(has_points(
      rerolled(unrolled_convolution(form)), "s1",
      "[y, z, f, s, k] : 0 <= y < Y and 0 <= z < Z and 0 <= f < F and 0 <= k < K and 0 <= s < 3 and 0 <= y + s - 1 < Y and "
      "0 <= z + s - 1 < Z"))
      << "along a diagonal";
}

TEST(RerollSums, OtherSumsStay) {
  UnrolledForm corner;
  corner.taps = {{0, 0}, {0, 1}, {0, 2}, {1, 0}};
  EXPECT_EQ(refusal(unrolled_convolution(corner)), kRefused) << "no box";
  UnrolledForm twice;
  twice.taps = {{0, 0}, {0, 1}, {0, 1}};
  EXPECT_EQ(refusal(unrolled_convolution(twice)), kRefused) << "the same terms twice";
  UnrolledForm moving;
  moving.taps = {{0, 0}, {0, 1}, {0, 2}};
  moving.other_tap = "(f mod 2)";
  EXPECT_EQ(refusal(unrolled_convolution(moving)), kRefused) << "no constant";
  UnrolledForm row;
  row.taps = {{0, 0}, {0, 1}, {0, 2}};
  const Nest before = unrolled_convolution(row);
  EXPECT_EQ(refusal(before), "none");
  UnrolledForm two;
  two.taps = {{0, 0}, {0, 1}};
  EXPECT_EQ(refusal(unrolled_convolution(two)), kRefused) << "one kernel has both";
  EXPECT_EQ(refusal(with_statement(before, "s2_init", [](Statement& start) { start.value = number(1); })), kRefused);
  EXPECT_EQ(refusal(with_statement(before, "s2", [](Statement& sum) { sum.value = sum.value * number(2); })), kRefused);
  EXPECT_EQ(refusal(with_statement(before, "s2", [](Statement& sum) { sum.reduction = ReductionOp::max; })), kRefused);
  EXPECT_EQ(refusal(with_statement(before, "out", [](Statement& out) { out.value = out.value * read(1); })), kRefused)
      << "one of them is read for itself";
  const Nest apart = with_statement(
      before, "s2", [](Statement& sum) { sum.domain = sum.domain.intersect(parse_set("{ s2[y, z, f, k] : k != 1 }", "test")); });
  EXPECT_EQ(refusal(apart), kRefused) << "points in pieces";
}

TEST(RerollSums, WhatSumsReadMustStay) {
  UnrolledForm row;
  row.taps = {{0, 0}, {0, 1}, {0, 2}};
  row.type = ElementType::f32;
  Nest nest = unrolled_convolution(row);
  for (Tensor& tensor : nest.tensors) {
    if (tensor.name == "w") tensor.role = TensorRole::temporary;
  }
  const auto write = [&](const std::string& name, std::size_t place) {
    Statement statement;
    statement.name = name;
    statement.dims = {"f", "s", "t", "k"};
    statement.domain = parse_set(
        "[Y, Z, F, K] -> { " + name + "[f, s, t, k] : 0 <= f < F and 0 <= s < 3 and 0 <= t < 3 and 0 <= k < K }", "test");
    statement.write = {"w", parse_map("[Y, Z, F, K] -> { " + name + "[f, s, t, k] -> w[f, s, t, k] }", "test")};
    statement.value = number(3);
    insert_statement(nest, place, statement);
  };
  write("first", 0);
  EXPECT_EQ(refusal(nest), "none");
  write("again", position_of(nest, "s2"));
  EXPECT_EQ(refusal(nest), kRefused);
}

}  // namespace
}  // namespace nestor
