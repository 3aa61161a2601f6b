// Elements of truth values and wide integers: what is read of them, and what is written.
#include "support/element_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace nestor {
namespace {

TEST(ElementCodec, AWideIntegerIsTheNearestOf32Bits) {
  const std::array<std::int64_t, 9> stored{0,
                                           -1,
                                           2147483647,
                                           2147483648,
                                           -2147483648LL,
                                           -2147483649LL,
                                           std::int64_t{1} << 32,
                                           std::numeric_limits<std::int64_t>::max(),
                                           std::numeric_limits<std::int64_t>::min()};
  const std::array<double, 9> read{0,          -1,         2147483647,   2147483647, -2147483648.0, -2147483648.0,
                                   2147483647, 2147483647, -2147483648.0};
  for (std::size_t k = 0; k < stored.size(); ++k) {
    EXPECT_EQ(load_element(ElementType::i64, reinterpret_cast<const std::byte*>(stored.data()), static_cast<std::int64_t>(k)),
              read[k])
        << stored[k];
    EXPECT_EQ(round_to(ElementType::i64, static_cast<double>(stored[k])), read[k]);
  }
  std::array<std::int64_t, 2> written{7, 7};
  auto* bytes = reinterpret_cast<std::byte*>(written.data());
  for (const auto& [value, wanted] :
       {std::pair(0x1p40, std::int64_t{1} << 40), std::pair(-2.9, std::int64_t{-2}), std::pair(std::nan(""), std::int64_t{0}),
        std::pair(0x1p63, std::numeric_limits<std::int64_t>::max()),
        std::pair(-1e30, std::numeric_limits<std::int64_t>::min())}) {
    store_element(ElementType::i64, bytes, 1, value);
    EXPECT_EQ(written[1], wanted);
  }
  EXPECT_EQ(written[0], 7);
}

/// As its definition says, by functions that take exponents apart.
double rounded_slowly(double value, int mantissa, int least, int most) {
  if (!std::isfinite(value) || value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  const int scale = std::max(exponent - 1, least) - mantissa;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -scale)), scale);
  const bool infinite = std::fabs(rounded) >= std::ldexp(1.0, most + 1);
  return infinite ? std::copysign(std::numeric_limits<double>::infinity(), value) : rounded;
}

TEST(ElementCodec, RoundingToSixteenBitsIsTheDefinitionsBitForBit) {
  std::mt19937_64 random(1);
  std::vector<double> values{0.0,      -0.0,     0x1p-1074, -0x1p-1022, std::numeric_limits<double>::max(),
                             0x1p1023, 65519.99, 65520,     -65520};
  for (const double special : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan("")})
    values.push_back(special);
  for (int k = 0; k < 400000; ++k) {
    const std::uint64_t bits = random();
    values.push_back(std::bit_cast<double>(bits));
    // Around the formats' numbers: ties, their neighbours, the smallest and the largest.
    const int exponent = static_cast<int>(random() % 300) - 160;
    const double tie = std::ldexp(static_cast<double>(bits % 8192), exponent - 12);
    for (const double near : {tie, std::nextafter(tie, 1e300), std::nextafter(tie, -1e300), -tie}) values.push_back(near);
  }
  for (const double value : values) {
    const double half = round_to(ElementType::f16, value), bfloat = round_to(ElementType::bf16, value);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(half), std::bit_cast<std::uint64_t>(rounded_slowly(value, 10, -14, 15))) << value;
    ASSERT_EQ(std::bit_cast<std::uint64_t>(bfloat), std::bit_cast<std::uint64_t>(rounded_slowly(value, 7, -126, 127))) << value;
  }
}

TEST(ElementCodec, AnyByteButZeroIsTrueAndOneIsWritten) {
  std::array<std::uint8_t, 4> bytes{0, 1, 2, 0x80};
  auto* at = reinterpret_cast<std::byte*>(bytes.data());
  for (int k = 0; k < 4; ++k) EXPECT_EQ(load_element(ElementType::boolean, at, k), k == 0 ? 0 : 1) << k;
  store_element(ElementType::boolean, at, 3, -5);
  store_element(ElementType::boolean, at, 2, 0);
  EXPECT_EQ(bytes[3], 1);
  EXPECT_EQ(bytes[2], 0);
  EXPECT_FALSE(is_poison(ElementType::boolean, at, 3));
  std::memset(bytes.data(), static_cast<int>(poison_bits(ElementType::boolean)), bytes.size());
  EXPECT_TRUE(is_poison(ElementType::boolean, at, 0));
}

TEST(ElementCodec, NamesAndSizesOfTypes) {
  for (const auto& [type, name, bytes] : {std::tuple(ElementType::boolean, "bool", 1U), std::tuple(ElementType::i64, "i64", 8U),
                                          std::tuple(ElementType::i32, "i32", 4U)}) {
    EXPECT_EQ(to_string(type), name);
    EXPECT_EQ(element_type_from(name), type);
    EXPECT_EQ(size_in_bytes(type), bytes);
  }
}

}  // namespace
}  // namespace nestor
