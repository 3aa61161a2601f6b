// SearcherKind: the searchers by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace nestor {

enum class SearcherKind : std::uint8_t { exhaustive, random, evolutionary };
std::string_view to_string(SearcherKind kind);
std::optional<SearcherKind> searcher_kind_from(std::string_view name);

}  // namespace nestor
