// Content digests (XXH3-128): nests, kernels, look-up keys. Equal across processes and machines.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace nestor {

/// XXH3-128 of `data` as 32 lower-case hexadecimal digits.
std::string hash_hex(std::string_view data);

/// Digest of a sequence of fields: each field's length is hashed too, so ("ab", "c") and ("a", "bc") differ.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  Hasher& add(std::string_view field);
  std::string hex() const;  ///< as hash_hex

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nestor
