// JSON from outside: text that is not nested too deep for those who read it, and text that can always be written.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace nestor {

/// Arrays and objects inside each other in what is read from outside; readers and writers recurse that deep.
inline constexpr int kDeepestJson = 2000;

/// Throws UserError, which begins with `what` ("nest.json"), for text that is no JSON or is nested deeper than that.
nlohmann::json json_from_text(std::string_view text, const std::string& what);

/// The same without throwing: a discarded value for either.
nlohmann::json json_or_discarded(std::string_view text);

/// Throws UserError for JSON that somebody else parsed and that is nested too deep.
void require_flat_json(const nlohmann::json& json, const std::string& what);

/// A number, or one of the texts "nan", "inf" and "-inf", which JSON has no numbers for.
nlohmann::json number_to_json(double number);
/// What that has made a value of; nothing: something else has.
std::optional<double> number_from_json(const nlohmann::json& value);

/// The value as text. What is no UTF-8 in it is replaced. `indent`: as dump() takes it.
std::string json_to_text(const nlohmann::json& json, int indent = -1);

/// Text with everything that is no UTF-8 replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

}  // namespace nestor
