// Counter-based random numbers: Philox4x32-10 of J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011. Equal counters and keys give equal numbers on every machine and in every order.
#pragma once

#include <Halide.h>

#include <array>
#include <cstdint>

namespace nestor::kernels {

using Words = std::array<Halide::Expr, 4>;  ///< of type UInt(32)

inline Halide::Expr word(std::uint32_t value) {
  return Halide::Internal::make_const(Halide::UInt(32), static_cast<std::int64_t>(value));
}
inline Halide::Expr word(const Halide::Expr& value) { return Halide::cast<std::uint32_t>(value); }

inline Halide::Expr high_product(const Halide::Expr& a, const Halide::Expr& b) {
  return word((Halide::cast<std::uint64_t>(a) * Halide::cast<std::uint64_t>(b)) >> 32);
}

/// Four words of 32 random bits.
inline Words philox(Words counter, std::array<Halide::Expr, 2> key) {
  const Halide::Expr first = word(0xD2511F53U), second = word(0xCD9E8D57U);
  for (int round = 0; round < 10; ++round) {
    if (round > 0) key = {key[0] + word(0x9E3779B9U), key[1] + word(0xBB67AE85U)};
    counter = {high_product(counter[2], second) ^ counter[1] ^ key[0], counter[2] * second,
               high_product(counter[0], first) ^ counter[3] ^ key[1], counter[0] * first};
  }
  return counter;
}

}  // namespace nestor::kernels
