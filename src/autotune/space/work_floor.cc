// Points of a box that are in a domain, counted by sampling.
#include "autotune/space/work_floor.h"

#include <isl/cpp.h>

#include <algorithm>
#include <random>

namespace nestor {
namespace {

constexpr int kSamples = 500;
constexpr double kMargin = 0.1;         ///< of the box: exp(-2 * 500 * 0.1^2) < 1e-4
constexpr double kLanes = 128;          ///< f32 operations that a multiprocessor begins in a clock; 64 on some
constexpr double kClocksPerMs = 2.1e6;  ///< no GPU of compute capability 8 or 9 runs faster

isl::set at_sizes(const isl::set& domain, const Sizes& sizes) {
  isl_set* fixed = domain.copy();
  for (const auto& [name, value] : sizes) {
    const int position = isl_set_find_dim_by_name(fixed, isl_dim_param, name.c_str());
    if (position >= 0) fixed = isl_set_fix_si(fixed, isl_dim_param, static_cast<unsigned>(position), static_cast<int>(value));
  }
  return isl::manage(isl_set_project_out(fixed, isl_dim_param, 0, static_cast<unsigned>(isl_set_dim(fixed, isl_dim_param))));
}

std::int64_t number(isl_val* value) {
  const std::int64_t result = isl_val_get_num_si(value);
  isl_val_free(value);
  return result;
}

double least_of(const isl::set& domain) {
  if (domain.is_empty()) return 0;
  const int rank = static_cast<int>(isl_set_dim(domain.get(), isl_dim_set));
  std::vector<std::uniform_int_distribution<std::int64_t>> ranges;
  double box = 1;
  for (int k = 0; k < rank; ++k) {
    const std::int64_t low = number(isl_set_dim_min_val(domain.copy(), k));
    const std::int64_t high = number(isl_set_dim_max_val(domain.copy(), k));
    ranges.emplace_back(low, high);
    box *= static_cast<double>(high - low + 1);
  }
  std::mt19937_64 random(1);
  int inside = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    isl_point* point = isl_point_zero(isl_set_get_space(domain.get()));
    for (int k = 0; k < rank; ++k) {
      isl_val* at =
          isl_val_int_from_si(isl_set_get_ctx(domain.get()), static_cast<long>(ranges[static_cast<std::size_t>(k)](random)));
      point = isl_point_set_coordinate_val(point, isl_dim_set, k, at);
    }
    if (isl::manage(isl_set_from_point(point)).is_subset(domain)) ++inside;
  }
  return box * std::max(0.0, static_cast<double>(inside) / kSamples - kMargin);
}

}  // namespace

double least_instances(const Nest& nest, const Sizes& sizes) {
  double most = 0;
  for (const Statement& statement : nest.statements) most = std::max(most, least_of(at_sizes(statement.domain, sizes)));
  return most;
}

double least_scalar_ms(double instances, int units) { return instances / (units * kLanes * kClocksPerMs); }

}  // namespace nestor
