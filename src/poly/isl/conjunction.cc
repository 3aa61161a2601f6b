// isl's simple hull without shifted constraints.
#include "poly/isl/conjunction.h"

#include <isl/map.h>
#include <isl/set.h>

namespace nestor {

bool is_union(const isl::map& map) { return isl_map_n_basic_map(map.get()) > 1; }
bool is_union(const isl::set& set) { return isl_set_n_basic_set(set.get()) > 1; }

isl::map conjunction_around(const isl::map& map) {
  if (!is_union(map)) return map;
  return isl::manage(isl_map_from_basic_map(isl_map_unshifted_simple_hull(map.copy())));
}

isl::set conjunction_around(const isl::set& set) {
  if (!is_union(set)) return set;
  return isl::manage(isl_set_from_basic_set(isl_set_unshifted_simple_hull(set.copy())));
}

}  // namespace nestor
