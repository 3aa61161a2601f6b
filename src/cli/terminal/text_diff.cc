// Longest common subsequence of lines, by rows of a table.
#include "cli/terminal/text_diff.h"

#include "cli/terminal/screen.h"
#include "support/words/printable.h"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace nestor::cli {
namespace {

using Kind = DiffLine::Kind;
using Lines = std::vector<std::string>;

/// Cells of the table; longer texts are compared by their equal begin and end alone.
constexpr std::size_t kMostCells = 4'000'000;

Lines lines_of(const std::string& text) {
  Lines lines;
  std::istringstream in(printable(text, true));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string_view content(const std::string& line) {
  const std::size_t first = line.find_first_not_of(' ');
  return first == std::string::npos ? std::string_view() : std::string_view(line).substr(first);
}

bool alike(const std::string& a, const std::string& b) { return content(a) == content(b); }

/// Both texts line by line: equal lines once.
std::vector<DiffLine> aligned(const Lines& before, const Lines& after) {
  const std::size_t rows = before.size(), columns = after.size();
  std::vector<DiffLine> result;
  if (rows * columns > kMostCells) {
    for (const std::string& line : before) result.push_back({Kind::removed, line});
    for (const std::string& line : after) result.push_back({Kind::added, line});
    return result;
  }
  // common[r][c]: equal lines of before[r...] and after[c...].
  std::vector<std::vector<unsigned>> common(rows + 1, std::vector<unsigned>(columns + 1, 0));
  for (std::size_t r = rows; r-- > 0;) {
    for (std::size_t c = columns; c-- > 0;)
      common[r][c] = alike(before[r], after[c]) ? common[r + 1][c + 1] + 1 : std::max(common[r + 1][c], common[r][c + 1]);
  }
  std::size_t r = 0, c = 0;
  while (r < rows || c < columns) {
    if (r < rows && c < columns && alike(before[r], after[c])) {
      result.push_back({Kind::same, after[c++]});
      ++r;
    } else if (r < rows && (c == columns || common[r + 1][c] >= common[r][c + 1])) {
      result.push_back({Kind::removed, before[r++]});
    } else {
      result.push_back({Kind::added, after[c++]});
    }
  }
  return result;
}

/// Bytes that both begin and end with, cut at words.
struct SharedEnds {
  std::size_t begin = 0, end = 0;
};

SharedEnds shared_ends(std::string_view a, std::string_view b) {
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || (c & 0x80) != 0;
  };
  const std::size_t most = std::min(a.size(), b.size());
  SharedEnds ends;
  while (ends.begin < most && a[ends.begin] == b[ends.begin]) ++ends.begin;
  const auto cuts = [&](std::string_view text, std::size_t at) {
    return at > 0 && at < text.size() && in_word(text[at - 1]) && in_word(text[at]);
  };
  while (ends.begin > 0 && (cuts(a, ends.begin) || cuts(b, ends.begin))) --ends.begin;
  while (ends.end < most - ends.begin && a[a.size() - 1 - ends.end] == b[b.size() - 1 - ends.end]) ++ends.end;
  while (ends.end > 0 && (cuts(a, a.size() - ends.end) || cuts(b, b.size() - ends.end))) --ends.end;
  return ends;
}

/// Pairs what is gone with what came at its place, where they have something in common.
void pair_changes(std::vector<DiffLine>& lines) {
  const auto takes_place = [](const DiffLine& was, const DiffLine& is) {
    const SharedEnds ends = shared_ends(content(was.text), content(is.text));
    return 2 * (ends.begin + ends.end) >= std::min(content(was.text).size(), content(is.text).size());
  };
  for (std::size_t first = 0; first < lines.size();) {
    std::size_t k = first;
    while (k < lines.size() && lines[k].kind == Kind::removed) ++k;
    while (k < lines.size() && lines[k].kind != Kind::same &&
           !(lines[k].kind == Kind::added && takes_place(lines[first], lines[k])))
      ++k;
    if (lines[first].kind != Kind::removed || k == lines.size() || lines[k].kind != Kind::added) {
      ++first;
      continue;
    }
    lines[k] = {Kind::changed, lines[k].text, lines[first].text};
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

/// A changed line with its new part in colour.
std::string changed_text(const DiffLine& line, bool colour) {
  const std::string_view is = content(line.text);
  const SharedEnds ends = shared_ends(content(line.was), is);
  const std::size_t indent = line.text.size() - is.size();
  return line.text.substr(0, indent + ends.begin) +
         painted(is.substr(ends.begin, is.size() - ends.begin - ends.end), Ink::yellow, colour) +
         std::string(is.substr(is.size() - ends.end));
}

void add_change(const DiffLine& line, bool colour, std::string& gone, std::string& fresh) {
  if (line.kind == Kind::changed) gone += painted("- " + line.was, Ink::red, colour) + "\n";
  if (line.kind == Kind::removed) gone += painted("- " + line.text, Ink::red, colour) + "\n";
  if (line.kind == Kind::added) fresh += painted("+ " + line.text, Ink::green, colour) + "\n";
  if (line.kind == Kind::changed) fresh += painted("+ ", Ink::green, colour) + changed_text(line, colour) + "\n";
}

}  // namespace

std::vector<DiffLine> line_diff(const std::string& before, const std::string& after) {
  Lines old_lines = lines_of(before), new_lines = lines_of(after);
  std::vector<DiffLine> head, tail;
  std::size_t begin = 0, end = 0;
  const std::size_t most = std::min(old_lines.size(), new_lines.size());
  while (begin < most && alike(old_lines[begin], new_lines[begin])) head.push_back({Kind::same, new_lines[begin++]});
  while (end < most - begin && alike(old_lines[old_lines.size() - 1 - end], new_lines[new_lines.size() - 1 - end])) {
    tail.push_back({Kind::same, new_lines[new_lines.size() - 1 - end]});
    ++end;
  }
  const auto middle = [&](const Lines& lines) {
    return Lines(lines.begin() + static_cast<std::ptrdiff_t>(begin), lines.end() - static_cast<std::ptrdiff_t>(end));
  };
  std::vector<DiffLine> result = aligned(middle(old_lines), middle(new_lines));
  pair_changes(result);
  result.insert(result.begin(), head.begin(), head.end());
  result.insert(result.end(), tail.rbegin(), tail.rend());
  return result;
}

std::string marked_text(const std::string& before, const std::string& after, bool colour) {
  std::string text;
  for (const DiffLine& line : line_diff(before, after)) {
    if (line.kind == Kind::removed) continue;
    if (line.kind == Kind::same) text += "  " + line.text + "\n";
    if (line.kind == Kind::added) text += painted("+ " + line.text, Ink::green, colour) + "\n";
    if (line.kind == Kind::changed) text += painted("~ ", Ink::yellow, colour) + changed_text(line, colour) + "\n";
  }
  return text;
}

std::string diff_text(const std::string& before, const std::string& after, bool colour, std::size_t context) {
  const std::vector<DiffLine> lines = line_diff(before, after);
  std::vector<bool> shown(lines.size(), false);
  for (std::size_t k = 0; k < lines.size(); ++k) {
    if (lines[k].kind == Kind::same) continue;
    for (std::size_t near = k - std::min(k, context); near < std::min(lines.size(), k + context + 1); ++near) shown[near] = true;
  }
  if (std::find(shown.begin(), shown.end(), true) == shown.end()) return "";
  std::string text;
  for (std::size_t k = 0; k < lines.size();) {
    if (lines[k].kind == Kind::same) {
      if (shown[k]) text += "  " + lines[k].text + "\n";
      if (!shown[k] && (k == 0 || shown[k - 1])) text += "  ..\n";
      ++k;
      continue;
    }
    std::string gone, fresh;
    for (; k < lines.size() && lines[k].kind != Kind::same; ++k) add_change(lines[k], colour, gone, fresh);
    text += gone + fresh;
  }
  return text;
}

}  // namespace nestor::cli
