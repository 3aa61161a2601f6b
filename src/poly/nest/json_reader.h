// Reading JSON with messages that say where in the file something is wrong.
#pragma once

#include "poly/nest/nest.h"
#include "support/error.h"
#include "support/system/json_text.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

namespace nestor {

/// A value inside a nest file together with its place there, for messages.
class JsonReader {
 public:
  JsonReader(const nlohmann::json& value, std::string place) : value_(value), place_(std::move(place)) {}

  JsonReader at(const char* key) const {
    if (!value_.is_object() || !value_.contains(key)) user_error("{}: the key \"{}\" is missing", place_, key);
    return {value_.at(key), place_ == "nest" ? std::string(key) : place_ + "." + key};
  }
  /// Refuses keys other than these: one that is misspelt would be as if it was not there.
  const JsonReader& only(std::initializer_list<const char*> keys) const {
    if (!value_.is_object()) user_error("{} must be an object", place_);
    for (const auto& [key, value] : value_.items()) {
      if (std::none_of(keys.begin(), keys.end(), [&](const char* known) { return key == known; }))
        user_error("{}: there is no key \"{}\"; the keys are {}", place_, key, fmt::join(keys, ", "));
    }
    return *this;
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_.at(key).is_null(); }

  std::vector<JsonReader> list() const {
    if (!value_.is_array()) user_error("{} must be a list", place_);
    std::vector<JsonReader> items;
    for (std::size_t k = 0; k < value_.size(); ++k) items.emplace_back(value_[k], fmt::format("{}[{}]", place_, k));
    return items;
  }
  std::string text() const {
    if (!value_.is_string()) user_error("{} must be a string", place_);
    return value_.get<std::string>();
  }
  std::int64_t integer() const {
    if (!value_.is_number_integer()) user_error("{} must be an integer", place_);
    if (value_.is_number_unsigned() && value_.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      user_error("{} must be an integer of 64 bits, not {}", place_, value_.get<std::uint64_t>());
    return value_.get<std::int64_t>();
  }
  bool boolean() const {
    if (!value_.is_boolean()) user_error("{} must be true or false", place_);
    return value_.get<bool>();
  }
  double number() const {
    if (const auto number = number_from_json(value_)) return *number;
    user_error("{} must be a number, \"inf\", \"-inf\" or \"nan\"", place_);
  }
  ElementType type() const {
    const auto found = element_type_from(text());
    if (!found) user_error("{}: \"{}\" is no element type; the types are f32, f16, bf16, i32, bool and i64", place_, text());
    return *found;
  }
  TensorRole role() const {
    for (const TensorRole role : {TensorRole::input, TensorRole::output, TensorRole::temporary}) {
      if (to_string(role) == text()) return role;
    }
    user_error("{}: \"{}\" is no role; the roles are input, output and temporary", place_, text());
  }
  const std::string& place() const { return place_; }

 private:
  const nlohmann::json& value_;
  std::string place_;
};

/// Converts UserErrors of a name look-up into ones that say where the name stood.
template <class F>
auto named(const JsonReader& reader, const F& look_up) {
  try {
    return look_up(reader.text());
  } catch (const UserError& error) {
    user_error("{}: {}", reader.place(), error.what());
  }
}

}  // namespace nestor
