// Asks the terminal, $TERM and $NO_COLOR.
#include "cli/terminal/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace nestor::cli {
namespace {

const char* code_of(Ink ink) {
  switch (ink) {
    case Ink::bold:
      return "1";
    case Ink::dim:
      return "2";
    case Ink::red:
      return "31";
    case Ink::green:
      return "32";
    case Ink::yellow:
      return "33";
    case Ink::cyan:
      return "36";
    case Ink::plain:
      break;
  }
  return "0";
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int terminal_width() {
  winsize size{};
  return isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

Screen screen_of_output() {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::string kind = variable("TERM");
  return {terminal_width(), terminal && !kind.empty() && kind != "dumb" && variable("NO_COLOR").empty(), terminal};
}

std::string painted(std::string_view text, Ink ink, bool colour) {
  if (!colour || ink == Ink::plain || text.empty()) return std::string(text);
  return std::string("\033[") + code_of(ink) + "m" + std::string(text) + "\033[0m";
}

std::size_t columns_of(std::string_view text) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins));
}

}  // namespace nestor::cli
