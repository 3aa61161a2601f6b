// Ranges are those of each element; their product must be the element's points, one instance each.
#include "poly/algebra/analysis/dense_points.h"

#include <isl/val.h>

#include <algorithm>
#include <cmath>

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"

namespace nestor {
namespace {

isl::map as_map(const isl::pw_aff& function) { return isl::manage(isl_map_from_pw_aff(function.copy())); }

/// { X -> [a] } and { X -> [b] } to { X -> [a, b] }; a null map is an empty start.
isl::map joined(const isl::map& a, const isl::map& b) {
  return a.is_null() ? b : isl::manage(isl_map_flat_range_product(a.copy(), b.copy()));
}

}  // namespace

std::vector<isl::pw_aff> dense_counts(const Nest& nest, const Statement& reduction) {
  const isl::set domain = domain_in(nest, reduction);
  const isl::map write = reduction.write.relation.intersect_domain(domain);
  const isl::map elements = write.reverse();
  isl::map instance_values, box;
  std::vector<isl::pw_aff> counts;
  for (const int dim : reduced_dims(reduction)) {
    const isl::map value = as_map(dim_function(domain, dim));
    const isl::map points = elements.apply_range(value);
    const isl::pw_aff low = isl::manage(isl_map_dim_min(points.copy(), 0));
    const isl::pw_aff high = isl::manage(isl_map_dim_max(points.copy(), 0));
    const isl::map above = as_map(low).apply_range(isl::map(isl_context(), "{ [a] -> [b] : b >= a }"));
    const isl::map below = as_map(high).apply_range(isl::map(isl_context(), "{ [a] -> [b] : b <= a }"));
    box = joined(box, above.intersect(below));
    instance_values = joined(instance_values, value);
    counts.push_back(high.sub(low).add_constant(1L).coalesce());
  }
  if (counts.empty()) return {};
  // One point for each combination: the other dims are fixed by the element.
  if (!write.range_product(instance_values).is_injective()) return {};
  return box.is_subset(elements.apply_range(instance_values)) ? counts : std::vector<isl::pw_aff>();
}

std::optional<std::int64_t> only_value(const isl::set& values) {
  const isl::set plain = isl::manage(
      isl_set_project_out(values.copy(), isl_dim_param, 0, static_cast<unsigned>(isl_set_dim(values.get(), isl_dim_param))));
  if (!plain.is_singleton()) return std::nullopt;
  const isl::val value = plain.dim_max_val(0);
  return isl_val_is_int(value.get()) == isl_bool_true ? std::optional<std::int64_t>(isl_val_get_num_si(value.get()))
                                                      : std::nullopt;
}

SizeProduct::SizeProduct(isl::set elements, const std::vector<isl::pw_aff>& counts) : elements_(std::move(elements)) {
  for (const isl::pw_aff& count : counts) ++find(as_map(count)).counts;
}

void SizeProduct::multiply(const isl::map& size, int exponent) { find(size).exponent += exponent; }

SizeProduct::Size& SizeProduct::find(const isl::map& value) {
  const isl::map own = value.intersect_domain(elements_);
  const auto same = std::find_if(sizes_.begin(), sizes_.end(), [&](const Size& known) { return known.value.is_equal(own); });
  return same != sizes_.end() ? *same : sizes_.emplace_back(Size{own});
}

std::optional<std::int64_t> SizeProduct::constant(const Size& size) const { return only_value(size.value.range()); }

int SizeProduct::power_of_counts() const {
  for (const Size& size : sizes_) {
    if (size.counts > 0 && !constant(size)) return size.exponent / size.counts;
  }
  return 0;
}

std::optional<double> SizeProduct::over_counts(int power) const {
  double product = 1;
  for (const Size& size : sizes_) {
    const int left = size.exponent - power * size.counts;
    if (left == 0) continue;
    const auto number = constant(size);
    if (!number) return std::nullopt;
    product *= std::pow(static_cast<double>(*number), left);
  }
  return product;
}

}  // namespace nestor
