// Text difference: which lines of a text are new, changed or gone, for people who compare loop nests.
#pragma once

#include <string>
#include <vector>

namespace nestor::cli {

struct DiffLine {
  enum class Kind : unsigned char { same, changed, added, removed } kind = Kind::same;
  std::string text;      ///< as it is now; as it was, where removed
  std::string was = {};  ///< of a changed line
};

/// The lines of `after`, with those of `before` that are gone at their place. Lines that differ in their indentation alone are the same. A line
/// that took another's place and shares a part of it is changed.
std::vector<DiffLine> line_diff(const std::string& before, const std::string& after);

/// `after` with a margin of two columns: "+ " at new lines, "~ " at changed ones; in colour their new parts stand out. Control characters are
/// shown as what they are.
std::string marked_text(const std::string& before, const std::string& after, bool colour);

/// Lines that are gone ("- ") and new ("+ "), with `context` lines around them and ".." where lines are left out; "" where none differs.
std::string diff_text(const std::string& before, const std::string& after, bool colour, std::size_t context = 2);

}  // namespace nestor::cli
