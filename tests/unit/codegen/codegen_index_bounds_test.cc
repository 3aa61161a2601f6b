// Kernels say at which sizes the indices that they use as values fit in 32 bits.
#include "codegen/tile/build/index_bounds.h"
#include "codegen/tile/tile_program.h"
#include "poly/schedule/schedule.h"
#include "support/error_text.h"
#include "support/nests/sample_nests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nestor {
namespace {

using namespace samples;
using ::testing::HasSubstr;

/// out[i] = index(i), where `points` holds.
Nest numbers(const std::string& index, const std::string& points = "0 <= i < N") {
  return NestBuilder("numbers", {{"N", 10}, {"M", 10}})
      .tensor("out", TensorRole::output, {"N"})
      .statement("start[i] : 0 <= i < N", "out[i]", {}, number(0))
      .statement("out[i] : " + points, "out[i]", {}, ScalarExpr::cast(ElementType::f32, ScalarExpr::index(0)), std::nullopt,
                 {index})
      .build();
}

bool fits(const Nest& nest, const Sizes& sizes) { return is_valid_for(build_tile_program(Schedule(nest)).valid, sizes); }

TEST(IndexBounds, SizesAtWhichAnIndexLeaves32BitsAreRefused) {
  const Nest far = numbers("70001 i + M");
  EXPECT_TRUE(fits(far, {{"N", 30000}, {"M", 1000}}));
  EXPECT_FALSE(fits(far, {{"N", 40000}, {"M", 1000}}));
  EXPECT_TRUE(fits(far, {{"N", 1}, {"M", 2147483647}}));
  EXPECT_FALSE(fits(far, {{"N", 1}, {"M", 2147483648}}));
  const Nest plain = numbers("i");
  EXPECT_TRUE(fits(plain, {{"N", 2147483648}, {"M", 1}}));
  EXPECT_FALSE(fits(plain, {{"N", 2147483649}, {"M", 1}}));
  const Nest below = numbers("-70001 i");
  EXPECT_TRUE(fits(below, {{"N", 30000}, {"M", 1}}));
  EXPECT_FALSE(fits(below, {{"N", 40000}, {"M", 1}}));
  const Nest quotient = numbers("floor((70001 i) / 4)");
  EXPECT_TRUE(fits(quotient, {{"N", 100000}, {"M", 1}}));
  EXPECT_FALSE(fits(quotient, {{"N", 130000}, {"M", 1}}));
}

TEST(IndexBounds, PointsWithoutAnInstanceBoundNothing) {
  const Nest few = numbers("70001 i", "0 <= i < N and i < 5");
  EXPECT_TRUE(fits(few, {{"N", 1000000}, {"M", 1}}));
  EXPECT_TRUE(bounds_of_index_values(few).empty());
  EXPECT_TRUE(bounds_of_index_values(matmul()).empty()) << "no index is a value";
}

TEST(IndexBounds, SizesToTuneForNameTheIndex) {
  const std::string why = test::message_of([] { complete_sizes(numbers("70001 i"), {{"N", 40000}}); });
  EXPECT_THAT(why, HasSubstr("out: its index 70001i goes from 0 to 2799969999"));
  EXPECT_THAT(why, HasSubstr("cast its parts to f32"));
  EXPECT_EQ(complete_sizes(numbers("70001 i"), {{"N", 30000}}).at("N"), 30000);
}

}  // namespace
}  // namespace nestor
