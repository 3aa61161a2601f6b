// Draws of one seed, for random nests and inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace nestor::samples {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  bool chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }
  int below(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }
  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  template <class T>
  T of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
  }
  std::uint64_t seed() { return random_(); }

 private:
  std::mt19937_64 random_;
};

}  // namespace nestor::samples
