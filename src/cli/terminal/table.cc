// Tables that fit the terminal: the widest columns wrap; on narrow terminals each row is a paragraph.
#include "cli/terminal/output.h"
#include "cli/terminal/screen.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor::cli {
namespace {

using Row = std::vector<std::string>;

constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 8;  ///< columns that a cell is wrapped to at least

std::vector<std::size_t> widths_of(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], columns_of(row[k]));
  }
  return widths;
}

std::size_t sum_of(const std::vector<std::size_t>& widths) {
  std::size_t sum = widths.empty() ? 0 : (widths.size() - 1) * kGap;
  for (const std::size_t width : widths) sum += width;
  return sum;
}

/// Takes from the widest columns until all fit; false where one would become too narrow.
bool fit(std::vector<std::size_t>& widths, std::size_t room) {
  while (sum_of(widths) > room) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kNarrowest) return false;
    --*widest;
  }
  return true;
}

/// Bytes of the longest begin of at most `width` columns.
std::size_t bytes_within(const std::string& text, std::size_t width) {
  std::size_t bytes = 0;
  for (std::size_t columns = 0; bytes < text.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(text[bytes]) & 0xc0) != 0x80;
    if (begins && columns++ == width) break;
  }
  return bytes;
}

/// Lines of at most `width` columns, cut at spaces, else behind commas, slashes and the like, else anywhere.
Row wrapped(std::string text, std::size_t width) {
  Row lines;
  while (columns_of(text) > width) {
    const std::size_t most = bytes_within(text, width);
    std::size_t cut = text.rfind(' ', most), next = cut + 1;
    if (cut == std::string::npos || cut == 0) {
      cut = text.find_last_of(",/=)_-.", most - 1);
      cut = next = cut == std::string::npos || cut == 0 ? most : cut + 1;
    }
    lines.push_back(text.substr(0, cut));
    text.erase(0, next);
  }
  lines.push_back(text);
  return lines;
}

std::string line_of(const Row& cells, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t k = 0; k < cells.size(); ++k) {
    line += cells[k];
    if (k + 1 < cells.size()) line.append(widths[k] - columns_of(cells[k]) + kGap, ' ');
  }
  return line;
}

std::string wrapped_table(const std::vector<Row>& rows, const std::vector<std::size_t>& widths) {
  std::string text;
  for (const Row& row : rows) {
    std::vector<Row> cells;
    std::size_t height = 1;
    for (std::size_t k = 0; k < row.size(); ++k) {
      cells.push_back(wrapped(row[k], widths[k]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t at = 0; at < height; ++at) {
      Row line;
      for (const Row& cell : cells) line.push_back(at < cell.size() ? cell[at] : "");
      std::string drawn = line_of(line, widths);
      if (height > 1) drawn.erase(drawn.find_last_not_of(' ') + 1);
      text += drawn + "\n";
    }
  }
  return text;
}

/// "name: cell" a line; the first row has the names.
std::string paragraphs(const std::vector<Row>& rows, std::size_t width) {
  std::string text;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    if (r > 1) text += "\n";
    for (std::size_t k = 0; k < rows[r].size(); ++k) {
      const std::string name = k < rows[0].size() ? rows[0][k] : "";
      for (const std::string& line : wrapped(name + ": " + rows[r][k], std::max(width, kNarrowest))) text += line + "\n";
    }
  }
  return text;
}

}  // namespace

std::string format_table(const std::vector<Row>& rows, int width) {
  std::vector<std::size_t> widths = widths_of(rows);
  const auto room = static_cast<std::size_t>(std::max(width, 0));
  if (width > 0 && !fit(widths, room)) return paragraphs(rows, room);
  return wrapped_table(rows, widths);
}

}  // namespace nestor::cli
