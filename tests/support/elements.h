// Storage of tensor elements for tests: doubles to f32, f16, bf16 and i32 bit patterns and back.
#pragma once

#include "nestor/types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace nestor::testing {

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

inline float from_f16(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
}

/// Round to nearest even.
inline std::uint16_t to_f16(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int quantum = std::max(exponent - 11, -24);  // exponent of the last place
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -quantum)));
  if (quantum == -24) return static_cast<std::uint16_t>(sign | units);
  return static_cast<std::uint16_t>(sign + ((quantum + 24) << 10) + units);
}

inline void write_element(void* memory, ElementType type, double value) {
  const auto f = static_cast<float>(value);
  const auto i = static_cast<std::int32_t>(value);
  const std::uint16_t half = type == ElementType::f16 ? to_f16(f) : to_bf16(f);
  if (type == ElementType::f32) std::memcpy(memory, &f, 4);
  if (type == ElementType::i32) std::memcpy(memory, &i, 4);
  if (type == ElementType::f16 || type == ElementType::bf16) std::memcpy(memory, &half, 2);
}

inline double read_element(const void* memory, ElementType type) {
  float f = 0;
  std::int32_t i = 0;
  std::uint16_t half = 0;
  std::memcpy(&half, memory, 2);
  if (type == ElementType::f16) return from_f16(half);
  if (type == ElementType::bf16) return from_bf16(half);
  std::memcpy(&f, memory, 4);
  std::memcpy(&i, memory, 4);
  return type == ElementType::i32 ? i : f;
}

}  // namespace nestor::testing
