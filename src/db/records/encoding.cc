// zstd, base64 and raw doubles.
#include "db/records/encoding.h"

#include "support/error.h"

#include <zstd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace nestor {
namespace {

constexpr int kLevel = 9;                             // kernels are some 10 KiB: under a millisecond
constexpr unsigned long long kLargest = 64ull << 20;  // as in a pack
constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::uint32_t digit_value(char c) {
  const std::size_t found = kDigits.find(c);
  if (found == std::string_view::npos) user_error("not base64: character {:#04x}", static_cast<unsigned char>(c));
  return static_cast<std::uint32_t>(found);
}

}  // namespace

std::string zstd_compress(std::string_view data) {
  std::string out(ZSTD_compressBound(data.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), data.data(), data.size(), kLevel);
  if (ZSTD_isError(size) != 0) internal_error("zstd: {}", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

std::string zstd_decompress(std::string_view data) {
  const unsigned long long size = ZSTD_getFrameContentSize(data.data(), data.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > kLargest) user_error("not compressed data");
  std::string out(static_cast<std::size_t>(size), '\0');
  const std::size_t got = ZSTD_decompress(out.data(), out.size(), data.data(), data.size());
  if (ZSTD_isError(got) != 0) user_error("damaged compressed data: {}", ZSTD_getErrorName(got));
  if (got != out.size()) user_error("damaged compressed data: {} bytes instead of {}", got, out.size());
  return out;
}

std::string base64_encode(std::string_view data) {
  std::string out;
  out.reserve((data.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < data.size(); at += 3) {
    const std::size_t left = std::min<std::size_t>(3, data.size() - at);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8 | (k < left ? static_cast<unsigned char>(data[at + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) out += k <= left ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::string base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) user_error("not base64: {} characters, not a multiple of 4", text.size());
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::size_t digits = 4;
    if (at + 4 == text.size()) {
      while (digits > 2 && text[at + digits - 1] == '=') --digits;
    }
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 4; ++k) word = word << 6 | (k < digits ? digit_value(text[at + k]) : 0u);
    if ((word & ((1u << (8 * (4 - digits))) - 1)) != 0) user_error("not base64: bits after the end");
    for (std::size_t k = 0; k + 1 < digits; ++k) out += static_cast<char>(word >> (16 - 8 * k));
  }
  return out;
}

static_assert(std::endian::native == std::endian::little);

std::string doubles_to_bytes(const std::vector<double>& values) {
  std::string bytes(values.size() * sizeof(double), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<double> doubles_from_bytes(std::string_view bytes) {
  if (bytes.size() % sizeof(double) != 0) user_error("{} bytes of samples, not a multiple of 8", bytes.size());
  std::vector<double> values(bytes.size() / sizeof(double));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace nestor
