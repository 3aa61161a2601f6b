// Fields with their lengths into one generic hash.
#include "db/trust/blake2b.h"

#include "support/error.h"

#include <sodium.h>

#include <array>
#include <cstring>

namespace nestor {
namespace {

crypto_generichash_state* state_of(unsigned char* bytes) { return reinterpret_cast<crypto_generichash_state*>(bytes); }

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

void require_sodium() {
  static const bool ready = sodium_init() >= 0;
  if (!ready) internal_error("libsodium cannot be initialised");
}

Blake2b::Blake2b() {
  static_assert(sizeof(crypto_generichash_state) <= sizeof state_);
  require_sodium();
  crypto_generichash_init(state_of(state_), nullptr, 0, kDigestHex / 2);
}

Blake2b& Blake2b::add(std::string_view field) {
  const std::uint64_t size = field.size();
  crypto_generichash_update(state_of(state_), reinterpret_cast<const unsigned char*>(&size), sizeof size);
  crypto_generichash_update(state_of(state_), reinterpret_cast<const unsigned char*>(field.data()), field.size());
  return *this;
}

Blake2b& Blake2b::add(std::int64_t value) { return add(bytes_of(value)); }

Blake2b& Blake2b::add(double value) {
  const double positive_zero = value + 0.0;
  return add(bytes_of(positive_zero));
}

std::string Blake2b::hex() {
  std::array<unsigned char, kDigestHex / 2> digest{};
  crypto_generichash_final(state_of(state_), digest.data(), digest.size());
  return to_hex({reinterpret_cast<const char*>(digest.data()), digest.size()});
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

std::string from_hex(std::string_view hex, std::size_t bytes) {
  if (hex.size() != 2 * bytes) return "";
  std::string out(bytes, '\0');
  for (std::size_t k = 0; k < bytes; ++k) {
    const int high = digit_of(hex[2 * k]), low = digit_of(hex[2 * k + 1]);
    if (high < 0 || low < 0) return "";
    out[k] = static_cast<char>(high << 4 | low);
  }
  return out;
}

}  // namespace nestor
