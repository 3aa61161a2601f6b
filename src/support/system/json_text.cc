// Depth is counted before anything is built.
#include "support/system/json_text.h"

#include "nestor/error.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace nestor {
namespace {

/// Whether brackets outside of strings are nested deeper than kDeepestJson.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool inside_string = false;
  for (std::size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    if (inside_string) {
      if (c == '\\') ++k;
      inside_string = c != '"';
    } else if (c == '"') {
      inside_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepestJson) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

[[noreturn]] void refuse_depth(const std::string& what) {
  throw UserError(fmt::format("{} has arrays and objects nested more than {} deep", what, kDeepestJson));
}

}  // namespace

nlohmann::json json_from_text(std::string_view text, const std::string& what) {
  if (too_deep(text)) refuse_depth(what);
  // By depth: keys of the objects that are open. Of a key that is there twice, one value would be lost.
  std::vector<std::set<std::string>> keys;
  const auto note_keys = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) {
      keys.resize(static_cast<std::size_t>(depth) + 1);
      keys.back().clear();
    } else if (event == nlohmann::json::parse_event_t::key) {
      keys.resize(static_cast<std::size_t>(depth));
      if (!keys.back().insert(parsed.get<std::string>()).second)
        throw UserError(fmt::format("{} has an object with the key {} twice", what, json_to_text(parsed)));
    }
    return true;
  };
  nlohmann::json json = nlohmann::json::parse(text, note_keys, false);
  if (json.is_discarded()) throw UserError(fmt::format("{} is not valid JSON", what));
  return json;
}

nlohmann::json json_or_discarded(std::string_view text) {
  return too_deep(text) ? nlohmann::json(nlohmann::json::value_t::discarded) : nlohmann::json::parse(text, nullptr, false);
}

void require_flat_json(const nlohmann::json& json, const std::string& what) {
  std::vector<std::pair<const nlohmann::json*, int>> open{{&json, 1}};
  while (!open.empty()) {
    const auto [value, depth] = open.back();
    open.pop_back();
    if (!value->is_structured()) continue;
    if (depth > kDeepestJson) refuse_depth(what);
    for (const nlohmann::json& child : *value) open.emplace_back(&child, depth + 1);
  }
}

nlohmann::json number_to_json(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

std::optional<double> number_from_json(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

std::string json_to_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string valid_utf8(std::string_view text) {
  // Through a JSON string, whose writer knows all of UTF-8.
  const std::string quoted = json_to_text(nlohmann::json(std::string(text)));
  return nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace nestor
