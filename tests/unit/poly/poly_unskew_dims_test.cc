// Rule unskew_dims: dims of distances become dims of places, where operands of products follow those.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/nest_interpreter.h"
#include "support/nests/rewritten_values.h"
#include "support/nests/sample_nests.h"
#include "support/nests/window_of_distances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace nestor {
namespace {

using namespace samples;
using ::testing::HasSubstr;

std::string refusal(const Nest& nest, const std::string& statement = "s") {
  try {
    rule("unskew_dims").apply(nest, {statement});
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::string read_of(const Nest& nest, const std::string& statement, std::size_t read) {
  return isl_text(nest.statement(statement).reads[read].relation);
}

TEST(UnskewDims, DistancesFromARowBecomePlaces) {
  for (const char* place : {"i - a", "i + a", "i + a - 20"}) {
    const Nest before = window_of_distances(place);
    const auto matches = rule("unskew_dims").find(before);
    ASSERT_FALSE(matches.empty()) << place;
    const Nest nest = rule("unskew_dims").apply(before, matches.front().target).nest;
    validate(nest);
    EXPECT_TRUE(rule("unskew_dims").find(nest).empty()) << "once";
    EXPECT_THAT(read_of(nest, "s", 1), HasSubstr("k[a, e]")) << place;
    EXPECT_THAT(read_of(nest, "out", 0), HasSubstr("p[i, a]")) << place;
    EXPECT_THAT(read_of(nest, "out", 1), HasSubstr("v[a, d]")) << place;
    for (const Sizes& sizes : {Sizes{{"N", 1}}, Sizes{{"N", 7}}, Sizes{{"N", 50}}})
      EXPECT_EQ(differences(before, nest, sizes, 20), 0) << place;
  }
}

TEST(UnskewDims, WhatFollowsADistanceFollowsBoth) {
  Nest before = with_statement(window_of_distances(), "p", [](Statement& p) {
    p.indices.push_back(isl::manage(isl_pw_aff_read_from_str(isl_context().get(), "[N] -> { p[i, a] -> [(a)] }")));
    p.value = p.value + ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0));
  });
  const Nest nest = rule("unskew_dims").apply(before, {"s"}).nest;
  EXPECT_EQ(differences(before, nest, {{"N", 11}}, 20), 0);
}

TEST(UnskewDims, SumsOverDistancesAreRunningSums) {
  struct Case {
    const char *place, *points;
    ReductionOp op = ReductionOp::add;
  };
  for (const Case& each : {Case{"i - a", "0 <= a <= i"}, Case{"i - a - 2", "0 <= a <= -2 + i"}, Case{"i + a", "i <= a < N"},
                           Case{"i - a", "0 <= a <= i", ReductionOp::max}}) {
    const Nest before = running_sum_of_distances(each.place, each.op);
    const auto matches = rule("unskew_dims").find(before);
    ASSERT_EQ(matches.size(), 1U) << each.place;
    const Nest nest = rule("unskew_dims").apply(before, matches.front().target).nest;
    validate(nest);
    EXPECT_TRUE(rule("unskew_dims").find(nest).empty()) << "once";
    EXPECT_THAT(read_of(nest, "out", 0), HasSubstr("x[b, a]")) << each.place;
    const isl::set points =
        parse_set(std::string("[B, N] -> { out[b, i, a] : 0 <= b < B and 0 <= i < N and ") + each.points + " }", "test");
    EXPECT_TRUE(nest.statement("out").domain.intersect_params(nest.context).is_equal(points.intersect_params(nest.context)))
        << each.place;
    for (const Sizes& sizes : {Sizes{{"B", 2}, {"N", 1}}, Sizes{{"B", 1}, {"N", 9}}})
      EXPECT_EQ(differences(before, nest, sizes, 20), 0) << each.place;
  }
}

TEST(UnskewDims, WindowsAndFiltersAreNoRunningSums) {
  EXPECT_THAT(refusal(running_sum_of_distances("i - a", ReductionOp::add, "40"), "out"), HasSubstr("no running sum"))
      << "places leave a window again";
  EXPECT_THAT(refusal(running_sum_of_distances("i - a", ReductionOp::add, "31"), "out"), HasSubstr("no running sum"));
  EXPECT_THAT(refusal(running_sum_of_distances("i - a", ReductionOp::add, "N", true), "out"), HasSubstr("no running sum"))
      << "weights by the distance";
  EXPECT_THAT(refusal(running_sum_of_distances("a"), "out"), HasSubstr("no running sum"));
}

TEST(UnskewDims, OtherNestsStayAsTheyAre) {
  EXPECT_THAT(refusal(window_of_distances("i - a", "31")), HasSubstr("no two factors become")) << "taps";
  EXPECT_THAT(refusal(window_of_distances("i - 2 a")), HasSubstr("no two factors become")) << "every second row";
  EXPECT_THAT(refusal(window_of_distances("a")), HasSubstr("no two factors become")) << "places";
  EXPECT_THAT(refusal(window_of_distances(), "p"), HasSubstr("no two factors become")) << "no sum";
  EXPECT_THAT(refusal(window_of_distances("i - a", "40", "i, 39 - a")), HasSubstr("along other indices"));
  EXPECT_THAT(refusal(window_of_distances("i - a", "N", "a, i")), HasSubstr("where no place is"));
  const Nest ordered = with_statement(window_of_distances(), "p", [](Statement& p) {
    p.reads.push_back({"p", parse_map("[N] -> { p[i, a] -> p[i, a - 1] : a > 0 }", "test")});
  });
  EXPECT_THAT(refusal(ordered), HasSubstr("an order"));
}

}  // namespace
}  // namespace nestor
