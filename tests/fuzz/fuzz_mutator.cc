// How inputs are changed.
#include "fuzz/fuzz_mutator.h"

#include <algorithm>

namespace nestor::fuzz {
namespace {

/// Pieces that readers treat in a special way.
const std::vector<std::string>& pieces() {
  static const std::vector<std::string> list{"",
                                             "0",
                                             "-1",
                                             "1e400",
                                             "99999999999999999999",
                                             "18446744073709551615",
                                             "-9223372036854775808",
                                             "null",
                                             "true",
                                             "[]",
                                             "{}",
                                             "[[[[[[",
                                             "\"",
                                             "\\",
                                             "(",
                                             ")",
                                             ",",
                                             "\xff\xfe",
                                             "\xed\xa0\x80",
                                             "\n",
                                             "#",
                                             "//",
                                             "floor(",
                                             "ceild(",
                                             "mod",
                                             "%",
                                             "/",
                                             "*",
                                             "infty",
                                             "NaN",
                                             "not",
                                             "exists",
                                             "} -> {",
                                             "1/3",
                                             "nan",
                                             "inf",
                                             std::string(1, '\0')};
  return list;
}

}  // namespace

std::string Mutator::next() {
  std::string text = corpus_.empty() ? "" : parent();
  for (std::size_t k = 1 + below(6); k > 0; --k) change(text);
  text.resize(std::min(text.size(), kLongestInput));
  return text;
}

const std::string& Mutator::parent() {
  // What came last reached something new: half of the inputs are made of the newest quarter.
  const std::size_t newest = corpus_.size() / 4;
  if (newest > 0 && below(2) == 0) return corpus_[corpus_.size() - 1 - below(newest)];
  return any(corpus_);
}

void Mutator::change(std::string& text) {
  const std::size_t at = below(text.size() + 1), length = below(std::min<std::size_t>(text.size() - at, 40) + 1);
  switch (below(8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random_());
      return;
    case 1:
      text.erase(at, length);
      return;
    case 2:
      text.insert(at, any(pieces()));
      return;
    case 3:
      text.replace(at, length, any(pieces()));
      return;
    case 4:
      for (std::size_t k = below(200); k > 0 && text.size() < kLongestInput; --k) text.insert(at, text.substr(at, length));
      return;
    case 5: {
      const std::string& other = corpus_.empty() ? text : any(corpus_);
      const std::size_t from = below(other.size() + 1);
      text.insert(at, other.substr(from, below(200)));
      return;
    }
    case 6:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      return;
    default:
      // A digit more or less is a number that was never tried.
      for (std::size_t k = at; k < text.size(); ++k) {
        if (text[k] < '0' || text[k] > '9') continue;
        text[k] = static_cast<char>('0' + below(10));
        return;
      }
  }
}

}  // namespace nestor::fuzz
