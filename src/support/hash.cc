// Digests by xxHash, compiled in (no library to link).
#include "support/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace nestor {
namespace {

std::string to_hex(XXH128_hash_t hash) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  XXH128_canonical_t canonical;  // big endian on every machine
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

struct Hasher::State {
  XXH3_state_t xxh;
};

std::string hash_hex(std::string_view data) { return to_hex(XXH3_128bits(data.data(), data.size())); }

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

Hasher& Hasher::add(std::string_view field) {
  std::array<unsigned char, 8> length{};
  for (std::size_t k = 0; k < length.size(); ++k) length[k] = static_cast<unsigned char>(field.size() >> (8 * k));
  XXH3_128bits_update(&state_->xxh, length.data(), length.size());
  XXH3_128bits_update(&state_->xxh, field.data(), field.size());
  return *this;
}

std::string Hasher::hex() const { return to_hex(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace nestor
