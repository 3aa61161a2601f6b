// BLAKE2b of libsodium: digests that guard what is trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nestor {

inline constexpr std::size_t kDigestHex = 64;  ///< digits of a digest

/// Digest (256 bits) of a sequence of fields; each field's length is hashed too, so ("ab", "c") and ("a", "bc") differ.
class Blake2b {
 public:
  Blake2b();
  Blake2b& add(std::string_view field);
  Blake2b& add(std::int64_t value);
  /// Equal numbers are equal fields: -0 is 0.
  Blake2b& add(double value);
  /// Lower-case hexadecimal digits, kDigestHex of them. The last call on an object.
  std::string hex();

 private:
  alignas(64) unsigned char state_[384];
};

/// libsodium, ready for use. Throws InternalError when it cannot be initialised.
void require_sodium();

std::string to_hex(std::string_view bytes);
/// "" when `hex` is not exactly `bytes` bytes in lower-case hexadecimal digits.
std::string from_hex(std::string_view hex, std::size_t bytes);

}  // namespace nestor
