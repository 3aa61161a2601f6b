// Distances between words: R. Wagner and M. Fischer 1974, with swaps of neighbours (F. Damerau 1964).
#include "support/words/nearest_word.h"

#include <algorithm>
#include <cctype>

namespace nestor {
namespace {

/// Longer words are no slips of the finger.
constexpr std::size_t kLongest = 64;

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known) {
  if (word.empty() || word.size() > kLongest) return std::nullopt;
  const std::string wanted = lower(word);
  // Of a single letter nothing would be left.
  std::size_t least = (word.size() == 1 ? 0 : std::max<std::size_t>(1, word.size() / 3)) + 1;
  std::optional<std::string> nearest;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongest) continue;
    const std::size_t found = distance(wanted, lower(candidate));
    if (found >= least) continue;
    least = found;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const auto nearest = nearest_word(word, known);
  return nearest && *nearest != word ? "; did you mean '" + *nearest + "'?" : "";
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  return lower(text).find(lower(part)) != std::string::npos;
}

}  // namespace nestor
