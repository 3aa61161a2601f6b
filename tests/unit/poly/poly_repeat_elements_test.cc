// Rule repeat_elements: which operands it copies, with which elements.
#include "poly/algebra/all_rules.h"
#include "poly/isl/isl_tools.h"
#include "support/nests/apply_steps.h"
#include "support/nests/enlarged_nests.h"
#include "support/nests/rewritten_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;

std::size_t matches(const Nest& nest) { return rule("repeat_elements").find(nest).size(); }

std::size_t matches_reading(const std::string& a) {
  return matches(with_statement(enlarged_convolution(), "sum", [&](Statement& sum) {
    sum.reads[0].relation = parse_map("[N, S, F] -> { sum[n, y, x, f, s, t, c] -> a[n, " + a + ", c] }", "test");
  }));
}

TEST(RepeatElements, NeighboursHaveTheSameElementInACopy) {
  const Nest before = enlarged_convolution();
  ASSERT_EQ(matches(before), 1U);
  const Nest nest = rule("repeat_elements").apply(before, {"sum"}).nest;
  validate(nest);
  EXPECT_EQ(matches(nest), 0U) << "once";
  EXPECT_EQ(nest.statement("sum").reads[0].tensor, "a_repeated");
  EXPECT_EQ(nest.tensor("a_repeated").type, ElementType::f16);
  for (const std::int64_t side : {2, 3}) EXPECT_EQ(differences(before, nest, {{"N", 1}, {"S", side}, {"F", 2}}, 3), 0) << side;
}

TEST(RepeatElements, ZerosAroundImagesAreLeftOutFirst) {
  const Nest before = enlarged_beside_convolution();
  EXPECT_EQ(matches(before), 0U);
  const Schedule schedule = testing::scheduled(
      before, {"apply_rule(skip_zeros, sum_a)", "apply_rule(skip_zeros, sum_b)", "apply_rule(repeat_elements, sum_a)"});
  EXPECT_EQ(matches(schedule.nest()), 0U) << "b has an element for each place";
  EXPECT_EQ(differences(before, schedule.nest(), {{"N", 1}, {"S", 2}, {"F", 2}}, 2), 0);
}

TEST(RepeatElements, OtherPlacesAreReadAsTheyAre) {
  EXPECT_EQ(matches_reading("floor((y + s)/2), 0"), 1U) << "one index is enough";
  EXPECT_EQ(matches_reading("floor((y + s)/3) + 0, floor((x + t)/2)"), 1U) << "each with its own number";
  EXPECT_EQ(matches_reading("floor((y + s)/2), floor((x + t)/2) : (y + s) mod 2 = 0 and (x + t) mod 2 = 0"), 0U)
      << "strides of a transposed convolution";
  EXPECT_EQ(matches_reading("floor(y/2) + floor(s/2), 0"), 0U) << "two quotients";
  EXPECT_EQ(matches_reading("floor((2 y + s)/4), 0"), 0U) << "no sum of dims";
  EXPECT_EQ(matches_reading("y - 2*floor(y/2), 0"), 0U) << "a remainder";
  EXPECT_EQ(matches_reading("0, 0"), 0U);
  Nest wide = enlarged_convolution();
  for (Tensor& tensor : wide.tensors) {
    if (tensor.name == "a") tensor.role = TensorRole::temporary;
  }
  EXPECT_EQ(matches(wide), 0U) << "no input";
}

}  // namespace
}  // namespace nestor
