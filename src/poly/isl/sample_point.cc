// The lexicographic minimum under a small budget, then any point.
#include "poly/isl/sample_point.h"

#include "poly/isl/context.h"

#include <isl/point.h>
#include <isl/set.h>
#include <isl/val.h>

namespace nestor {
namespace {

constexpr std::uint64_t kSmallestPointBudget = 500'000;

isl::point some_point(const isl::set& set) {
  try {
    const IslBudget budget(kSmallestPointBudget);
    return isl::manage(isl_set_sample_point(isl_set_lexmin(set.copy())));
  } catch (const isl::exception&) {
    isl_ctx_reset_error(set.ctx().get());
    return isl::manage(isl_set_sample_point(set.copy()));
  }
}

}  // namespace

std::vector<std::int64_t> smallest_point(const isl::set& set) {
  const isl::point point = some_point(set);
  std::vector<std::int64_t> numbers;
  const int dims = static_cast<int>(isl_set_dim(set.get(), isl_dim_set));
  for (int k = 0; k < dims; ++k) {
    isl_val* value = isl_point_get_coordinate_val(point.get(), isl_dim_set, k);
    numbers.push_back(isl_val_get_num_si(value));
    isl_val_free(value);
  }
  return numbers;
}

}  // namespace nestor
