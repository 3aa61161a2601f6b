// Names of Halide things as isl and Nestor want them.
#include "frontend/values/names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace nestor {
namespace {

constexpr std::array<std::string_view, 18> kIslKeywords{"and",    "or",    "not",   "exists", "implies",  "true",
                                                        "false",  "mod",   "floor", "min",    "max",      "ceil",
                                                        "floord", "ceild", "abs",   "infty",  "infinity", "nan"};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string without_counter(const std::string& name) {
  const std::size_t dollar = name.rfind('$');
  if (dollar == std::string::npos || dollar == 0 || dollar + 1 == name.size()) return name;
  const bool counter = std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dollar) + 1, name.end(), is_digit);
  return counter ? name.substr(0, dollar) : name;
}

}  // namespace

bool is_isl_keyword(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::find(kIslKeywords.begin(), kIslKeywords.end(), lower) != kIslKeywords.end();
}

std::string identifier(const std::string& halide_name) {
  std::string name = without_counter(halide_name);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  if (name.empty() || is_digit(name.front())) name.insert(0, "_");
  if (is_isl_keyword(name)) name += '_';
  return name;
}

std::string NameTable::take(const std::string& wanted) {
  std::string name = wanted;
  for (int k = 2; !taken_.insert(name).second; ++k) name = wanted + "_" + std::to_string(k);
  return name;
}

}  // namespace nestor
