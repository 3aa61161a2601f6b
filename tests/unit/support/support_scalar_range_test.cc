// Ranges of scalar arguments: what lies in them, and how they are written.
#include "support/scalar_range.h"

#include "support/launch_recipe.h"

#include <gtest/gtest.h>

#include <limits>

namespace nestor {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ScalarSpec scalar(double minimum, double maximum) {
  ScalarSpec spec;
  spec.minimum = minimum;
  spec.maximum = maximum;
  return spec;
}

TEST(ScalarRange, HasItsLimitsAndNoNan) {
  const ScalarSpec spec = scalar(0.5, 2);
  for (const double inside : {0.5, 1.0, 2.0}) EXPECT_TRUE(in_range(inside, spec)) << inside;
  for (const double outside : {0.49, 2.01, -kInfinity, kInfinity, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(in_range(outside, spec)) << outside;
  EXPECT_TRUE(in_range(1e38, scalar(0, kInfinity)));
  EXPECT_FALSE(in_range(kInfinity, scalar(0, kInfinity))) << "what has a limit is finite";
  EXPECT_TRUE(in_range(kInfinity, scalar(-kInfinity, kInfinity)));
  EXPECT_EQ(range_text(scalar(0.5, kInfinity)), "0.5 to inf and finite");
  EXPECT_EQ(range_text(spec), "0.5 to 2");
}

TEST(ScalarRange, IsWrittenWhereItEnds) {
  nlohmann::json both = nlohmann::json::object(), none = both, lower = both;
  range_to_json(scalar(0.5, 2), both);
  range_to_json(scalar(-kInfinity, kInfinity), none);
  range_to_json(scalar(1, kInfinity), lower);
  EXPECT_EQ(both, nlohmann::json({{"min", 0.5}, {"max", 2.0}}));
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(lower, nlohmann::json({{"min", 1.0}}));
}

}  // namespace
}  // namespace nestor
