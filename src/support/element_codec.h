// Element types in memory <-> double: what the oracle and the comparison of results need.
#pragma once

#include "nestor/types.h"

#include <cstddef>
#include <cstdint>

namespace nestor {

double half_to_double(std::uint16_t bits);
/// Rounds to nearest even; overflows to infinity.
std::uint16_t double_to_half(double value);
double bfloat_to_double(std::uint16_t bits);
std::uint16_t double_to_bfloat(double value);

/// half_to_double by a table.
float quick_half(std::uint16_t bits);
/// An i64 is the nearest i32.
double load_element(ElementType type, const std::byte* base, std::int64_t linear);
/// The same of many; 0 where the element's number is negative.
void load_elements(ElementType type, const std::byte* base, const std::int64_t* linear, double* out, int count);
/// Rounds to the type; integers round towards zero and saturate.
void store_element(ElementType type, std::byte* base, std::int64_t linear, double value);
/// `value` as one reads it from the type.
double round_to(ElementType type, double value);

/// Generation of the poison where it does not matter.
inline constexpr std::uint32_t kFirstPoison = 0xad;

/// Bits that no kernel writes by chance: a NaN with a payload, for integers an unlikely number. Neighbouring generations differ, so that what a
/// launch left unwritten is not taken for the result of an earlier one.
std::uint32_t poison_bits(ElementType type, std::uint32_t generation = kFirstPoison);
bool is_poison(ElementType type, const std::byte* base, std::int64_t linear, std::uint32_t generation = kFirstPoison);

}  // namespace nestor
