// Screen: what the terminal behind standard output can show, and text in colours for it.
#pragma once

#include <string>
#include <string_view>

namespace nestor::cli {

/// Columns of the terminal that standard output is; 0: it is none, or its width is unknown.
int terminal_width();

/// What text may make use of. As it stands: a file or a pipe, which gets the plain text.
struct Screen {
  int width = 0;        ///< columns; 0: no limit
  bool colour = false;  ///< escape sequences are obeyed, and wanted
  bool marks = false;   ///< somebody reads along: changes are marked, conflicts drawn
};

/// Of standard output now. Colour: on a terminal whose $TERM is not "dumb", unless $NO_COLOR is set and not empty.
Screen screen_of_output();

enum class Ink : unsigned char { plain, bold, dim, red, green, yellow, cyan };
/// The text in that colour, or as it is. It must have no control characters of its own but line ends and tabs.
std::string painted(std::string_view text, Ink ink, bool colour);

/// Columns that UTF-8 text takes, each character one.
std::size_t columns_of(std::string_view text);

}  // namespace nestor::cli
