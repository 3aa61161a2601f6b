// Random contents of arguments: equal on every machine, with every standard library and any number of threads.
#pragma once

#include "nestor/types.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace nestor {

/// splitmix64, a counter hashed: the k-th number can be had without those before it.
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t at(std::uint64_t k) const {
    std::uint64_t z = seed_ + (k + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  std::uint64_t next() { return at(position_++); }
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit)); }

 private:
  std::uint64_t seed_;
  std::uint64_t position_ = 0;
};

/// The seed of one argument's numbers.
std::uint64_t seed_for(const std::string& name, std::uint64_t seed);

/// Fills `count` elements at `data`: numbers near enough to a normal distribution (the sum of four uniform ones, mean 0,
/// variance 1), integers from -8 to 8, booleans. On all cores when there is much to fill.
void fill_random(ElementType type, std::byte* data, std::int64_t count, std::uint64_t seed);

}  // namespace nestor
