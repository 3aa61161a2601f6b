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

std::optional<Point> point_from(const Space& space, const std::map<std::string, std::int64_t>& values) {
  const auto& parameters = space.parameters();
  Point point(parameters.size(), 0);
  std::size_t used = 0;
  for (std::size_t k = 0; k < parameters.size(); ++k) {
    const auto value = values.find(parameters[k].name);
    if (value == values.end()) continue;
    ++used;
    const auto& choices = parameters[k].choices;
    const auto choice = std::find(choices.begin(), choices.end(), value->second);
    if (choice == choices.end()) return std::nullopt;
    point[k] = static_cast<int>(choice - choices.begin());
  }
  return used == values.size() ? std::optional(point) : std::nullopt;
}

std::int64_t value_or(const std::map<std::string, std::int64_t>& values, const std::string& name, std::int64_t otherwise) {
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
