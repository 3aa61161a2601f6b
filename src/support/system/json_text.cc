// Depth is counted before anything is built.
#include "support/system/json_text.h"

#include "nestor/error.h"

#include <fmt/format.h>

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
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
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

std::string json_to_text(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string valid_utf8(std::string_view text) {
  // Through a JSON string, whose writer knows all of UTF-8.
  const std::string quoted = json_to_text(nlohmann::json(std::string(text)));
  return nlohmann::json::parse(quoted).get<std::string>();
}

}  // namespace nestor
