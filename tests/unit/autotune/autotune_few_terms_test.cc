// Sums of a few terms in the oracle: elements of a row are evaluated at once, anew for each reader, and are what a whole evaluation gives.
#include "autotune/oracle/reference.h"
#include "support/element_codec.h"
#include "support/nests/algebra_nests.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace nestor {
namespace {

using samples::nearest_points;

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

/// `special`: elements of x are infinite, NaN, or too large to be squared.
void expect_whole_values(const Nest& nest, const Sizes& sizes, bool special) {
  HostTensors inputs = make_inputs(nest, sizes, 7);
  if (special) {
    HostTensor& x = inputs.at("x");
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    int place = 4;
    for (const double value : {kInfinite, std::nan(""), -kInfinite, 1e30, 3e38}) {
      store_element(ElementType::f32, x.bytes.data(), place, value);
      place += 7;
    }
  }
  Reference rows(nest, sizes, {}, inputs), whole(nest, sizes, {}, inputs);
  whole.evaluate_all(1e9);
  for (const char* output : {"to", "back"}) {
    for (std::int64_t k = 0; k < rows.elements(output); ++k) {
      const auto one = rows.bounded_value(output, k, 1e9), other = whole.bounded_value(output, k, 1e9);
      ASSERT_TRUE(one && other);
      EXPECT_TRUE(same_bits(one->value, other->value) || (std::isnan(one->value) && std::isnan(other->value))) << output << k;
      EXPECT_TRUE(same_bits(one->bound, other->bound)) << output << k << ": " << one->bound << ", " << other->bound;
    }
  }
}

TEST(FewTerms, RowsOfSumsAreThoseOfAWholeEvaluation) {
  for (const bool special : {false, true}) {
    for (const char* terms : {"1", "3", "8", "9"}) {
      expect_whole_values(nearest_points(terms), {{"B", 2}, {"N", 150}, {"M", 20}, {"C", 3}}, special);
      expect_whole_values(nearest_points(terms), {{"B", 1}, {"N", 20}, {"M", 270}, {"C", 3}}, special);
    }
    expect_whole_values(nearest_points("C"), {{"B", 2}, {"N", 30}, {"M", 140}, {"C", 3}}, special);
    expect_whole_values(nearest_points("3", ElementType::f16), {{"B", 2}, {"N", 30}, {"M", 140}, {"C", 3}}, special);
  }
}

TEST(FewTerms, CheapSumsAreNotWaitedFor) {
  const Sizes sizes{{"B", 2}, {"N", 30}, {"M", 140}, {"C", 3}};
  const auto needed = [&](const Nest& nest) {
    const HostTensors inputs = make_inputs(nest, sizes, 7);
    Reference reference(nest, sizes, {}, inputs);
    return reference.needed(reference.final_element("to", 3), 1000).elements.size();
  };
  EXPECT_EQ(needed(nearest_points("3")), 0U) << "evaluated anew";
  EXPECT_EQ(needed(nearest_points("9")), 140U) << "remembered";
}

}  // namespace
}  // namespace nestor
