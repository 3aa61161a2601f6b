// The table of pairs of blocks, as AFL has it: a counter each, compared by powers of two.
#include "fuzz/fuzz_coverage.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#ifdef NESTOR_FUZZ_COVERAGE
#define NESTOR_NOT_COUNTED __attribute__((no_sanitize_coverage, no_sanitize("address", "undefined")))
#else
#define NESTOR_NOT_COUNTED
#endif

namespace {

constexpr std::size_t kPairs = 1 << 16;

alignas(64) std::array<std::uint8_t, kPairs> reached;
/// A bit for each power of two that a counter ever had.
alignas(64) std::array<std::uint8_t, kPairs> known;
std::size_t number = 0;
thread_local std::uintptr_t previous = 0;

}  // namespace

#ifdef NESTOR_FUZZ_COVERAGE
extern "C" NESTOR_NOT_COUNTED void __sanitizer_cov_trace_pc() {
  // Addresses of one program are spread by a product; the upper bits are the good ones.
  const std::uintptr_t block = (reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) * 0x9e3779b97f4a7c15U) >> 48;
  std::uint8_t& count = reached.data()[(block ^ previous) & (kPairs - 1)];
  if (count != 255) ++count;
  previous = block >> 1;
}
#endif

namespace nestor::fuzz {

NESTOR_NOT_COUNTED void forget_reached() {
  std::memset(reached.data(), 0, kPairs);
  previous = 0;
}

NESTOR_NOT_COUNTED bool reached_news() {
  bool news = false;
  for (std::size_t at = 0; at < kPairs; at += sizeof(std::uint64_t)) {
    std::uint64_t eight;
    std::memcpy(&eight, reached.data() + at, sizeof(eight));
    if (eight == 0) continue;
    for (std::size_t k = at; k < at + sizeof(eight); ++k) {
      if (reached.data()[k] == 0) continue;
      const auto bit = static_cast<std::uint8_t>(1U << (std::bit_width(reached.data()[k]) - 1U));
      if ((known.data()[k] & bit) != 0) continue;
      if (known.data()[k] == 0) ++number;
      known.data()[k] |= bit;
      news = true;
    }
  }
  return news;
}

std::size_t pairs_reached() { return number; }

}  // namespace nestor::fuzz
