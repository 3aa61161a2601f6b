// Combinations of sizes.
#include "api/operators.h"
#include "api/tuning_plan.h"
#include "support/error.h"
#include "support/words/nearest_word.h"
#include "support/words/whole_number.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace nestor {
namespace {

constexpr std::size_t kMostPoints = 1'000'000;

using Axis = std::pair<std::string, std::vector<std::int64_t>>;

std::int64_t number_of(std::string_view text, std::string_view whole) {
  const auto value = whole_number(text);
  if (!value) user_error("'{}' is no value of a size: write 4096, 4k, 1k..16k (doubling) or 64..256+64 (in steps of 64)", whole);
  return *value;
}

/// "1k", "1k..16k", "64..256+64"
std::vector<std::int64_t> values_of(std::string_view text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {number_of(text, text)};
  const std::string_view rest = text.substr(dots + 2);
  const std::size_t plus = rest.find('+', 1);
  const std::int64_t first = number_of(text.substr(0, dots), text), last = number_of(rest.substr(0, plus), text);
  const std::int64_t step = plus == std::string_view::npos ? 0 : number_of(rest.substr(plus + 1), text);
  if (first < 1 || last < first || (plus != std::string_view::npos && step < 1))
    user_error("'{}' is no range of sizes: write it from 1 or more upwards, as 1k..16k or 64..256+64", text);
  std::vector<std::int64_t> values;
  for (std::int64_t value = first;; value += step > 0 ? step : value) {
    values.push_back(value);
    if (values.size() > kMostPoints) user_error("'{}' has more than {} values", text, kMostPoints);
    if (last - value < (step > 0 ? step : value)) return values;
  }
}

std::vector<Axis> axes_of(const Nest& nest, const std::vector<std::string>& texts) {
  std::vector<Axis> axes;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos && axes.empty())
      user_error("'{}' is no size: write name=value,value,..., for example rows=1k,4k", text);
    if (equals != std::string::npos) {
      std::string name = text.substr(0, equals);
      std::replace(name.begin(), name.end(), '-', '_');
      std::vector<std::string> known;
      for (const SizeParam& size : nest.sizes) known.push_back(size.name);
      if (std::find(known.begin(), known.end(), name) == known.end())
        user_error("{} has no size '{}'{}; its sizes are {}", nest.op, name, did_you_mean(name, known), describe_sizes(nest));
      if (std::any_of(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.first == name; }))
        user_error("size {} of {} is given twice: write all its values behind one {}=", name, nest.op, name);
      axes.emplace_back(name, std::vector<std::int64_t>());
    }
    const auto values =
        values_of(equals == std::string::npos ? std::string_view(text) : std::string_view(text).substr(equals + 1));
    axes.back().second.insert(axes.back().second.end(), values.begin(), values.end());
  }
  return axes;
}

}  // namespace

SizeGrid size_grid(const Nest& nest, const std::vector<std::string>& texts) {
  std::vector<Sizes> points{{}};
  for (const auto& [name, values] : axes_of(nest, texts)) {
    std::vector<Sizes> more;
    if (points.size() * values.size() > kMostPoints) user_error("the grid has more than {} combinations", kMostPoints);
    for (const Sizes& point : points) {
      for (const std::int64_t value : values) {
        more.push_back(point);
        more.back()[name] = value;
      }
    }
    points = std::move(more);
  }
  SizeGrid grid;
  std::optional<std::string> refusal;
  for (const Sizes& point : points) {
    try {
      grid.points.push_back(complete_sizes(nest, point));
    } catch (const UserError& error) {
      ++grid.left_out;
      if (!refusal) refusal = error.what();
    }
  }
  if (grid.points.empty()) user_error("{} takes none of the sizes: {}", nest.op, refusal.value_or("none are given"));
  return grid;
}

}  // namespace nestor
