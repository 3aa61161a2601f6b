// Reads that have elements at some instances alone: which conditions keep a value from the others, and what is refused.
#include "poly/algebra/values/reached_points.h"
#include "poly/schedule/schedule.h"
#include "support/error.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using samples::NestBuilder;
using samples::number;
using samples::read;
using ::testing::HasSubstr;

ScalarExpr make(ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); }
ScalarExpr integer(std::int64_t value) { return ScalarExpr::constant(static_cast<double>(value), ElementType::i32); }
ScalarExpr index(int ordinal) { return ScalarExpr::index(ordinal); }

/// y[i] = x[i] or, where the condition holds, x[element], which is there under `present` alone. Indices: i, n, 2 i.
Nest chosen(const ScalarExpr& condition, const std::string& element, const std::string& present) {
  Nest nest = NestBuilder("chosen", {{"n", 9}})
                  .tensor("x", TensorRole::input, {"n"})
                  .tensor("y", TensorRole::output, {"n"})
                  .statement("s[i] : 0 <= i < n", "y[i]", {"x[i]", "x[i]"},
                             ScalarExpr::make(ScalarOp::select, {condition, read(1), read(0)}), std::nullopt, {"i", "n", "2 i"})
                  .build();
  const std::string text = "[n] -> { s[i] -> x[" + element + "] : " + present + " }";
  nest.statements[0].reads[1].relation = isl::map(isl_context(), text);
  return nest;
}

std::string refusal(const Nest& nest) {
  try {
    Schedule schedule(nest);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(GuardedReads, ConditionsOnIndicesKeepValuesFromWhatIsNotThere) {
  EXPECT_EQ(refusal(chosen(make(ScalarOp::le, integer(1), index(0)), "i - 1", "i >= 1")), "");
  EXPECT_EQ(refusal(chosen(make(ScalarOp::lt, index(0), integer(0)), "i", "i < 0")), "") << "it is never read";
  const ScalarExpr half = make(ScalarOp::div, index(0), integer(2)), twice = make(ScalarOp::mul, half, integer(2));
  EXPECT_EQ(refusal(chosen(make(ScalarOp::eq, twice, index(0)), "i", "i mod 2 = 0")), "");
  const ScalarExpr third = make(ScalarOp::div, index(0), integer(-3));
  EXPECT_EQ(refusal(chosen(make(ScalarOp::lt, third, integer(-1)), "i - 4", "i >= 4")), "") << "floor(i / -3) < -1 from i = 4 on";
  EXPECT_THAT(refusal(chosen(make(ScalarOp::lt, third, integer(-1)), "i - 5", "i >= 5")), HasSubstr("s[i = 4]"));
  EXPECT_EQ(refusal(chosen(make(ScalarOp::eq, make(ScalarOp::bit_and, index(0), integer(3)), integer(3)), "i - 3", "i >= 3")),
            "");
  const ScalarExpr least = make(ScalarOp::min, index(0), integer(5));
  EXPECT_EQ(refusal(chosen(make(ScalarOp::le, integer(5), least), "i - 5", "i >= 5")), "");
}

TEST(GuardedReads, WhatMayReadNothingIsRefusedWithTheInstances) {
  EXPECT_THAT(refusal(chosen(make(ScalarOp::le, integer(1), index(0)), "i - 2", "i >= 2")),
              AllOf(HasSubstr("statement s may read an element of x that its access does not have"), HasSubstr("s[i = 1]"),
                    HasSubstr("a condition on indices")));
  EXPECT_THAT(refusal(chosen(make(ScalarOp::lt, number(0), read(0)), "i - 1", "i >= 1")), HasSubstr("s[i = 0]")) << "data decide";
  EXPECT_THAT(refusal(chosen(make(ScalarOp::eq, make(ScalarOp::bit_and, index(0), integer(2)), integer(2)), "i - 2", "i >= 3")),
              HasSubstr("s["))
      << "2 is no mask of low bits";
}

TEST(GuardedReads, IndicesAreExactWhereProductsOfThemWrapAround) {
  const Nest exact = chosen(make(ScalarOp::lt, index(2), index(1)), "2 i", "2 i < n");
  EXPECT_EQ(refusal(exact), "");
  EXPECT_EQ(guarded_sizes(exact), std::int64_t{1} << 30) << "from there on 2 i fills 32 bits";
  EXPECT_EQ(guarded_sizes(chosen(make(ScalarOp::le, integer(1), index(0)), "i", "0 <= i")), 2147483647);
  const ScalarExpr product = make(ScalarOp::mul, integer(2), index(0));
  EXPECT_EQ(guarded_sizes(chosen(make(ScalarOp::lt, product, index(1)), "2 i", "2 i < n")), std::int64_t{1} << 30);
  const ScalarExpr large = make(ScalarOp::mul, integer(1000), index(0));
  EXPECT_EQ(guarded_sizes(chosen(make(ScalarOp::lt, large, index(1)), "1000 i", "1000 i < n")), std::int64_t{1} << 21);
  const ScalarExpr huge = make(ScalarOp::mul, integer(1 << 20), index(0));
  EXPECT_THAT(refusal(chosen(make(ScalarOp::lt, huge, index(1)), "i", "1048576 i < n")), HasSubstr("wrap around 32 bits"));
  Nest limited = chosen(make(ScalarOp::lt, huge, index(1)), "i", "1048576 i < n");
  limited.sizes[0].max = 2000;
  EXPECT_EQ(refusal(limited), "");
}

TEST(GuardedReads, ConditionsMayBeJoinedWithOthersOfData) {
  const ScalarExpr behind = make(ScalarOp::le, integer(1), index(0)), data = make(ScalarOp::lt, number(0), read(0));
  const auto joined = [](ScalarOp op, const ScalarExpr& a, const ScalarExpr& b) { return ScalarExpr::make(op, {a, b}); };
  EXPECT_EQ(refusal(chosen(joined(ScalarOp::logical_and, data, behind), "i - 1", "i >= 1")), "");
  EXPECT_THAT(refusal(chosen(joined(ScalarOp::logical_or, data, behind), "i - 1", "i >= 1")), HasSubstr("s[i = 0]"));
  const ScalarExpr neither = ScalarExpr::make(
      ScalarOp::logical_not, {joined(ScalarOp::logical_or, data, ScalarExpr::make(ScalarOp::logical_not, {behind}))});
  EXPECT_EQ(refusal(chosen(neither, "i - 1", "i >= 1")), "");
}

}  // namespace
}  // namespace nestor
