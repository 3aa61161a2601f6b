// The known word that somebody most likely meant.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nestor {

/// The candidate with the fewest letters to insert, remove, replace or swap, where that is at most a third of the word (of two letters one,
/// of a single one none: its case alone may differ); the first of several.
std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& known);

/// "; did you mean 'matmul'?", or nothing when no candidate is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

/// Whether the text has the part, in any case.
bool contains_ignoring_case(std::string_view text, std::string_view part);

}  // namespace nestor
