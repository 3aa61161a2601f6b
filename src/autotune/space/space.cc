// What all spaces share: counting, naming and describing points.
#include "autotune/space/space.h"

#include <fmt/format.h>

#include <algorithm>

namespace nestor {

double point_count(const Space& space) {
  double count = 1;
  for (const Parameter& parameter : space.parameters()) count *= static_cast<double>(parameter.choices.size());
  return count;
}

std::map<std::string, std::int64_t> named_values(const Space& space, const Point& point) {
  std::map<std::string, std::int64_t> values;
  const auto& parameters = space.parameters();
  for (std::size_t k = 0; k < parameters.size(); ++k) values[parameters[k].name] = parameters[k].choices.at(point.at(k));
  return values;
}

namespace {

/// Sets the coordinates that `values` names; how many it names, and how many of those have such a choice.
std::pair<std::size_t, std::size_t> choose(const Space& space, const NamedValues& values, Point& point) {
  const auto& parameters = space.parameters();
  std::size_t named = 0, set = 0;
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    const auto value = values.find(parameters[k].name);
    if (value == values.end()) continue;
    ++named;
    const auto& choices = parameters[k].choices;
    const auto choice = std::find(choices.begin(), choices.end(), value->second);
    if (choice == choices.end()) continue;
    ++set;
    point[k] = static_cast<int>(choice - choices.begin());
  }
  return {named, set};
}

}  // namespace

std::optional<Point> point_from(const Space& space, const NamedValues& values) {
  Point point(space.parameters().size(), 0);
  const auto [named, set] = choose(space, values, point);
  return named == values.size() && set == named ? std::optional(point) : std::nullopt;
}

Point point_like(const Space& space, Point point, const NamedValues& values) {
  choose(space, values, point);
  return point;
}

std::int64_t value_or(const NamedValues& values, const std::string& name, std::int64_t otherwise) {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

std::string describe(const Space& space) {
  std::string text;
  for (const Parameter& parameter : space.parameters()) {
    text += fmt::format("{}: {}; ", parameter.name, fmt::join(parameter.choices, " "));
  }
  const double count = point_count(space);
  return text + (count < 1e9 ? fmt::format("{:.0f} candidates", count) : fmt::format("{:.1e} candidates", count));
}

}  // namespace nestor
