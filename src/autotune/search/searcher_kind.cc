// Names of searchers.
#include "autotune/search/searcher_kind.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nestor {
namespace {

constexpr std::array<std::pair<SearcherKind, std::string_view>, 3> kSearchers{
    {{SearcherKind::exhaustive, "exhaustive"}, {SearcherKind::random, "random"}, {SearcherKind::evolutionary, "evolutionary"}}};

}  // namespace

std::string_view to_string(SearcherKind kind) {
  return std::find_if(kSearchers.begin(), kSearchers.end(), [&](const auto& s) { return s.first == kind; })->second;
}

std::optional<SearcherKind> searcher_kind_from(std::string_view name) {
  for (const auto& [kind, text] : kSearchers) {
    if (text == name) return kind;
  }
  return std::nullopt;
}

}  // namespace nestor
