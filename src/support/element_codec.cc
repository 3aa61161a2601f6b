// Conversions between storage types and double.
#include "support/element_codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace nestor {
namespace {

template <class T>
T load(const std::byte* base, std::int64_t linear) {
  T value;
  std::memcpy(&value, base + linear * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* base, std::int64_t linear, T value) {
  std::memcpy(base + linear * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Rounds to a binary format with `mantissa` explicit bits, exponents `least`..`most`; ties to even. Rounding in one step
/// from double avoids the double rounding that a detour through f32 would cause.
double round_binary(double value, int mantissa, int least, int most) {
  constexpr int kFraction = 52, kBias = 1023;
  const auto power = [](int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(kBias + exponent) << kFraction);
  };
  const double size = std::fabs(value), infinite = power(most + 1);
  if (!(size < infinite)) return std::isnan(value) ? value : std::copysign(std::numeric_limits<double>::infinity(), value);
  const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(size) >> kFraction) - kBias;
  // Beside a number of which this format's last bit is the last one, the sum is rounded to that bit.
  const double beside = 1.5 * power(std::max(exponent, least) - mantissa + kFraction);
  const double rounded = (size + beside) - beside;
  return std::copysign(rounded >= infinite ? std::numeric_limits<double>::infinity() : rounded, value);
}

std::int32_t to_int32(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 2147483647.0) return std::numeric_limits<std::int32_t>::max();
  if (value <= -2147483648.0) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(value);
}

std::int64_t to_int64(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 0x1p63) return std::numeric_limits<std::int64_t>::max();
  if (value < -0x1p63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

}  // namespace

double half_to_double(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == 31) return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::uint16_t double_to_half(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const double rounded = std::fabs(round_binary(value, 10, -14, 15));
  if (std::isinf(rounded)) return sign | 0x7c00;
  if (rounded < std::ldexp(1.0, -14)) return sign | static_cast<std::uint16_t>(std::ldexp(rounded, 24));
  int exponent = 0;
  const double fraction = std::frexp(rounded, &exponent);
  return sign | static_cast<std::uint16_t>(((exponent + 14) << 10) | (static_cast<int>(std::ldexp(fraction, 11)) & 1023));
}

double bfloat_to_double(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t double_to_bfloat(double value) {
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(round_binary(value, 7, -126, 127))) >> 16);
}

double load_element(ElementType type, const std::byte* base, std::int64_t linear) {
  switch (type) {
    case ElementType::f32:
      return load<float>(base, linear);
    case ElementType::f16:
      return half_to_double(load<std::uint16_t>(base, linear));
    case ElementType::bf16:
      return bfloat_to_double(load<std::uint16_t>(base, linear));
    case ElementType::i32:
      return load<std::int32_t>(base, linear);
    case ElementType::boolean:
      return static_cast<double>(load<std::uint8_t>(base, linear) != 0);
    case ElementType::i64:
      return to_int32(static_cast<double>(load<std::int64_t>(base, linear)));
  }
  return 0;
}

namespace {

template <class Load>
void load_each(const std::int64_t* linear, double* out, int count, Load&& load_one) {
  for (int k = 0; k < count; ++k) out[k] = linear[k] < 0 ? 0 : load_one(linear[k]);
}

}  // namespace

float quick_half(std::uint16_t bits) {
  static const std::vector<float> kTable = [] {
    std::vector<float> table(1 << 16);
    for (std::uint32_t each = 0; each < table.size(); ++each)
      table[each] = static_cast<float>(half_to_double(static_cast<std::uint16_t>(each)));
    return table;
  }();
  return kTable[bits];
}

void load_elements(ElementType type, const std::byte* base, const std::int64_t* linear, double* out, int count) {
  switch (type) {
    case ElementType::f16:
      return load_each(linear, out, count, [&](std::int64_t k) { return quick_half(load<std::uint16_t>(base, k)); });
    case ElementType::bf16:
      return load_each(linear, out, count, [&](std::int64_t k) { return bfloat_to_double(load<std::uint16_t>(base, k)); });
    default:
      return load_each(linear, out, count, [&](std::int64_t k) { return load_element(type, base, k); });
  }
}

void store_element(ElementType type, std::byte* base, std::int64_t linear, double value) {
  switch (type) {
    case ElementType::f32:
      return store(base, linear, static_cast<float>(value));
    case ElementType::f16:
      return store(base, linear, double_to_half(value));
    case ElementType::bf16:
      return store(base, linear, double_to_bfloat(value));
    case ElementType::i32:
      return store(base, linear, to_int32(value));
    case ElementType::boolean:
      return store(base, linear, static_cast<std::uint8_t>(value != 0));
    case ElementType::i64:
      return store(base, linear, to_int64(value));
  }
}

double round_to(ElementType type, double value) {
  switch (type) {
    case ElementType::f32:
      return static_cast<float>(value);
    case ElementType::f16:
      return round_binary(value, 10, -14, 15);
    case ElementType::bf16:
      return round_binary(value, 7, -126, 127);
    case ElementType::i32:
    case ElementType::i64:
      return to_int32(value);
    case ElementType::boolean:
      return value != 0;
  }
  return value;
}

std::uint32_t poison_bits(ElementType type, std::uint32_t generation) {
  switch (type) {
    case ElementType::f32:
      return 0x7fbadb00 | (generation & 0xff);
    case ElementType::f16:
      return 0x7da0 | (generation & 0x1f);
    case ElementType::bf16:
      return 0x7fa0 | (generation & 0x1f);
    case ElementType::i32:
    case ElementType::i64:
      return 0x7badba00 | (generation & 0xff);
    case ElementType::boolean:
      return 0xa0 | (generation & 0x0f);
  }
  return 0;
}

bool is_poison(ElementType type, const std::byte* base, std::int64_t linear, std::uint32_t generation) {
  const std::uint32_t bits = poison_bits(type, generation);
  switch (size_in_bytes(type)) {
    case 4:
      return load<std::uint32_t>(base, linear) == bits;
    case 2:
      return load<std::uint16_t>(base, linear) == bits;
    default:
      return load<std::uint8_t>(base, linear) == bits;
  }
}

}  // namespace nestor
