// Counterexamples as text.
#include "codegen/proof/model/outcome.h"

#include "poly/isl/conjunction.h"

#include <fmt/format.h>
#include <isl/map.h>
#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

namespace nestor::proof {
namespace {

/// Small sizes read best: a point among those with all parameters at most `bound`, if there is one.
isl::set with_small_sizes(const isl::set& points) {
  for (const int bound : {8, 70, 600}) {
    isl_set* small = points.copy();
    for (int k = 0; k < isl_set_dim(points.get(), isl_dim_param); ++k)
      small = isl_set_upper_bound_si(small, isl_dim_param, static_cast<unsigned>(k), bound);
    const isl::set managed = isl::manage(small);
    if (!managed.is_empty()) return managed;
  }
  return points;
}

long coordinate(const isl::point& point, isl_dim_type type, unsigned k) {
  const isl::val value = isl::manage(isl_point_get_coordinate_val(point.get(), type, static_cast<int>(k)));
  return isl_val_get_num_si(value.get());
}

std::string values_text(const isl::point& point, std::size_t first, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t k = 0; k < names.size(); ++k)
    text +=
        fmt::format("{}{} = {}", k > 0 ? ", " : "", names[k], coordinate(point, isl_dim_set, static_cast<unsigned>(first + k)));
  return text;
}

std::string sizes_text(const isl::point& point) {
  const isl::space space = isl::manage(isl_point_get_space(point.get()));
  std::string text;
  for (int k = 0; k < isl_space_dim(space.get(), isl_dim_param); ++k) {
    const char* name = isl_space_get_dim_name(space.get(), isl_dim_param, static_cast<unsigned>(k));
    text += fmt::format("{}{} = {}", k > 0 ? ", " : "", name != nullptr ? name : "?",
                        coordinate(point, isl_dim_param, static_cast<unsigned>(k)));
  }
  return text;
}

isl::point sample(const isl::set& points) { return isl::manage(isl_set_sample_point(with_small_sizes(points).release())); }

std::string joined(const std::string& sizes, const std::string& values) {
  if (sizes.empty()) return values;
  return values.empty() ? sizes : sizes + ": " + values;
}

}  // namespace

std::string sample_text(const isl::set& points, const std::vector<std::string>& names) {
  const isl::point point = sample(points);
  return joined(sizes_text(point), values_text(point, 0, names));
}

std::string sample_text(const isl::map& pairs, const std::vector<std::string>& source, const std::vector<std::string>& sink) {
  const isl::point point = sample(isl::manage(isl_set_flatten(isl_map_wrap(pairs.copy()))));
  const std::string from = values_text(point, 0, source), to = values_text(point, source.size(), sink);
  return joined(sizes_text(point), fmt::format("({}) and ({})", from, to));
}

void expect_empty(const isl::set& points, const std::vector<std::string>& names, const std::string& what) {
  if (points.is_empty()) return;
  throw BrokenObligation(fmt::format("{}, for example {}", what, sample_text(points, names)));
}

bool is_empty(const isl::map& pairs) { return (is_union(pairs) && conjunction_around(pairs).is_empty()) || pairs.is_empty(); }

}  // namespace nestor::proof
