// Nearest word, then parts of words, then names that are used elsewhere.
#include "support/words/device_words.h"

#include "support/words/nearest_word.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

namespace nestor {
namespace {

/// Letters and digits alone, in lower case: "sm90" of "SM_90".
std::string bare(std::string_view text) {
  std::string kept;
  for (const unsigned char c : text) {
    if (std::isalnum(c)) kept += static_cast<char>(std::tolower(c));
  }
  return kept;
}

/// "h100", "rtx4090", "l40s": how GPUs are called.
bool is_like_a_gpu(const std::string& word) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto first = std::find_if(word.begin(), word.end(), digit);
  const auto digits = std::find_if_not(first, word.end(), digit) - first;
  const auto letters = first - word.begin();
  return letters >= 1 && letters <= 4 && digits >= 2 && digits <= 4;
}

/// What is written here for what is called otherwise elsewhere, best first.
std::vector<std::string> words_for(const std::string& name) {
  if (name == "cpu" || name == "x86" || name == "local" || name == "localhost") return {"host"};
  if (name == "h100" || name == "h200" || name == "gh200" || name == "hopper") return {"cuda", "sm_90"};
  if (name == "a100" || name == "ampere") return {"cuda", "sm_80"};
  if (name == "gpu" || name == "nvidia" || is_like_a_gpu(name)) return {"cuda"};
  return {};
}

std::optional<std::string> with_part(const std::string& name, const std::vector<std::string>& known) {
  constexpr std::size_t kShortest = 3;
  for (const std::string& word : known) {
    const std::string other = bare(word);
    if (std::min(name.size(), other.size()) < kShortest) continue;
    if (other.find(name) != std::string::npos || name.find(other) != std::string::npos) return word;
  }
  return std::nullopt;
}

}  // namespace

std::string meant_device(std::string_view word, const std::vector<std::string>& known) {
  std::vector<std::string> near = known;
  for (const std::string& words : known) {  // "H200" of "NVIDIA H200"
    for (std::size_t begin = 0; words.find(' ') != std::string::npos && begin < words.size();) {
      const std::size_t end = std::min(words.find(' ', begin), words.size());
      near.push_back(words.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (std::string meant = did_you_mean(word, near); !meant.empty()) return meant;
  constexpr std::size_t kLongest = 64;
  const std::string name = bare(word.substr(0, kLongest));
  const auto say = [](const std::string& meant) { return "; did you mean '" + meant + "'?"; };
  if (const auto found = with_part(name, known); found && *found != word) return say(*found);
  for (const std::string& other : words_for(name)) {
    if (std::find(known.begin(), known.end(), other) != known.end()) return say(other);
  }
  return "";
}

}  // namespace nestor
