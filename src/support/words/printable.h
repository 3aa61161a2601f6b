// Foreign text for terminals and messages: control characters shown as what they are.
#pragma once

#include <string>
#include <string_view>

namespace nestor {

/// `text` with control characters (C0 but for line ends and tabs, DEL, and C1 in UTF-8) as "\x1b": no terminal obeys them. `lines`
/// keeps line ends and tabs; else they are shown, too.
inline std::string printable(std::string_view text, bool lines = false) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  const auto show = [&](unsigned char byte) { out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]}; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = static_cast<unsigned char>(at + 1 < text.size() ? text[at + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      show(next);
      ++at;
    } else if ((byte < 0x20 && !(lines && (byte == '\n' || byte == '\t'))) || byte == 0x7f) {
      show(byte);
    } else {
      out += text[at];
    }
  }
  return out;
}

}  // namespace nestor
