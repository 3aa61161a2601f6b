// Boxes of two dims.
#include "poly/algebra/operands/whole_dims.h"

#include "poly/algebra/values/nest_edit.h"
#include "poly/isl/isl_tools.h"
#include "poly/nest/nest_sets.h"

#include <isl/set.h>

namespace nestor {

isl::set below(const isl::set& set, int dim, const isl::pw_aff& bound) {
  const isl::pw_aff function = dim_function(set, dim), most = over_params(bound).insert_domain(set.space());
  const isl::pw_aff none = function.sub(function);
  return set.intersect(function.lt_set(most)).intersect(function.ge_set(none));
}

isl::set without_dims(const isl::set& set, const std::vector<int>& dims) {
  isl_set* rest = set.copy();
  for (const int dim : dims) rest = isl_set_eliminate(rest, isl_dim_set, static_cast<unsigned>(dim), 1);
  return isl::manage(rest);
}

isl::set with_any_values(const Nest& nest, const Statement& statement, int a, int b) {
  return without_dims(domain_in(nest, statement), {a, b});
}

bool have_all_values(const Nest& nest, const Statement& statement, int outer, int inner, std::int64_t extent) {
  const isl::set free = with_any_values(nest, statement, outer, inner);
  const isl::set box =
      below(below(free, outer, extent_of(nest, statement.domain, outer)), inner, extent_of(nest, statement.domain, inner));
  return known_value(nest, extent_of(nest, statement.domain, inner)) == extent && domain_in(nest, statement).is_equal(box);
}

}  // namespace nestor
