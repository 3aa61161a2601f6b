// Digits, a point and an exponent in integers alone: 1e6 is exactly that.
#include "support/words/whole_number.h"

#include <charconv>

namespace nestor {
namespace {

std::optional<std::int64_t> integer(std::string_view digits) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> scaled(std::optional<std::int64_t> value, std::int64_t base, std::int64_t times) {
  for (; value && times > 0; --times) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(*value, base, &product)) return std::nullopt;
    value = product;
  }
  return value;
}

/// "2.5e3": the digits without the point, and as many fewer tens.
std::optional<std::int64_t> with_exponent(std::string_view mantissa, std::string_view exponent) {
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  const auto tens = integer(exponent);
  const std::size_t point = mantissa.find('.');
  const std::size_t behind = point == std::string_view::npos ? 0 : mantissa.size() - point - 1;
  constexpr std::size_t kMost = 24;
  if (!tens || *tens < 0 || *tens > static_cast<std::int64_t>(kMost) || mantissa.size() > kMost) return std::nullopt;
  char digits[kMost];
  std::size_t count = 0;
  for (const char c : mantissa) {
    if (c != '.') digits[count++] = c;
  }
  const std::int64_t left = *tens - static_cast<std::int64_t>(behind);
  const bool a_digit_before = point != 0 && !(point == 1 && (mantissa[0] == '-' || mantissa[0] == '+'));
  if (left < 0 || !a_digit_before || (point != std::string_view::npos && behind == 0)) return std::nullopt;
  return scaled(integer({digits, count}), 10, left);
}

}  // namespace

std::optional<std::int64_t> whole_number(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) return with_exponent(text.substr(0, exponent), text.substr(exponent + 1));
  const std::size_t unit = std::string_view("kMG").find(text.back());
  if (text.back() == 'K') return scaled(integer(text.substr(0, text.size() - 1)), 1024, 1);
  if (unit == std::string_view::npos) return integer(text);
  return scaled(integer(text.substr(0, text.size() - 1)), 1024, static_cast<std::int64_t>(unit) + 1);
}

}  // namespace nestor
