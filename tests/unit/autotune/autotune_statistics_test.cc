// Medians, how sure they are, and random arguments that are the same however they are made.
#include "autotune/tensors/random_fill.h"
#include "autotune/trial/statistics.h"
#include "support/element_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace nestor {
namespace {

TEST(MedianIntervalOf, FewSamplesAreNeverSure) {
  EXPECT_EQ(median_interval({}).median, 0);
  EXPECT_TRUE(std::isinf(median_interval({1, 1, 1, 1, 1}).relative_half_width()));
  const MedianInterval six = median_interval({6, 1, 5, 2, 4, 3});
  EXPECT_EQ(six.median, 3.5);
  EXPECT_EQ(six.lower, 1);
  EXPECT_EQ(six.upper, 6);
  EXPECT_DOUBLE_EQ(six.relative_half_width(), 2.5 / 3.5);
}

TEST(MedianIntervalOf, EqualSamplesHaveNoWidth) {
  EXPECT_EQ(median_interval(std::vector<double>(10, 2.0)).relative_half_width(), 0);
}

TEST(MedianIntervalOf, HoldsTheMedianNineteenTimesInTwenty) {
  std::mt19937 random(5);
  // Skewed, as times are; its median is log(2).
  std::exponential_distribution<double> times(1);
  for (const int count : {6, 20, 75, 400}) {
    int held = 0;
    constexpr int kRounds = 2000;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<double> samples;
      for (int k = 0; k < count; ++k) samples.push_back(times(random));
      const MedianInterval interval = median_interval(samples);
      held += interval.lower <= std::log(2.0) && std::log(2.0) <= interval.upper;
    }
    EXPECT_GE(held, 0.94 * kRounds) << count;
    EXPECT_LE(held, 0.995 * kRounds) << count;
  }
}

TEST(MedianIntervalOf, MoreSamplesAreSurer) {
  std::mt19937 random(6);
  std::normal_distribution<double> times(10, 1);
  std::vector<double> samples;
  double last = 1e9;
  for (const std::size_t count : {30u, 300u, 3000u}) {
    while (samples.size() < count) samples.push_back(times(random));
    const double width = median_interval(samples).relative_half_width();
    EXPECT_LT(width, last);
    last = width;
  }
}

TEST(RandomFill, LongAndShortFillsBeginAlike) {
  // The long one is made by several threads, where there are several.
  constexpr std::int64_t kLong = 5 << 20, kShort = 1000;
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16, ElementType::i32, ElementType::boolean}) {
    const std::size_t width = size_in_bytes(type);
    std::vector<std::byte> all(kLong * width), some(kShort * width);
    fill_random(type, all.data(), kLong, 3);
    fill_random(type, some.data(), kShort, 3);
    EXPECT_EQ(std::memcmp(all.data(), some.data(), some.size()), 0) << to_string(type);
    // No part repeats another one.
    const std::size_t half = all.size() / 2 / width * width;
    EXPECT_NE(std::memcmp(all.data(), all.data() + half, kShort * width), 0) << to_string(type);
  }
}

TEST(RandomFill, NumbersAreNormalEnough) {
  constexpr std::int64_t kCount = 200000;
  for (const ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
    std::vector<std::byte> data(kCount * size_in_bytes(type));
    fill_random(type, data.data(), kCount, 11);
    double sum = 0, squares = 0;
    for (std::int64_t k = 0; k < kCount; ++k) {
      const double value = load_element(type, data.data(), k);
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum / kCount, 0, 0.02) << to_string(type);
    EXPECT_NEAR(squares / kCount, 1, 0.02) << to_string(type);
  }
}

TEST(RandomFill, NamesAndSeedsGiveDifferentNumbers) {
  std::set<std::uint64_t> seeds;
  for (const char* name : {"x", "y", "weight"}) {
    for (const std::uint64_t seed : {1, 2, 3}) seeds.insert(seed_for(name, seed));
  }
  EXPECT_EQ(seeds.size(), 9u);
}

}  // namespace
}  // namespace nestor
