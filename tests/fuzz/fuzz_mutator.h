// Inputs made of others: changed byte by byte, cut, repeated, and put together from two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace nestor::fuzz {

/// No input is longer, in bytes.
inline constexpr std::size_t kLongestInput = 1 << 14;

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, std::uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  std::string next();

  /// Later inputs are made of this one, too.
  void keep(std::string text) { corpus_.push_back(std::move(text)); }

  std::size_t size() const { return corpus_.size(); }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& any(const std::vector<std::string>& list) { return list[below(list.size())]; }
  const std::string& parent();
  void change(std::string& text);

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

}  // namespace nestor::fuzz
