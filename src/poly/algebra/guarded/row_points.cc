// Lengths of intervals, piece by piece.
#include "poly/algebra/guarded/row_points.h"

#include <isl/aff.h>
#include <isl/map.h>
#include <isl/set.h>

#include <vector>

#include "poly/isl/isl_tools.h"

namespace nestor {
namespace {

constexpr std::size_t kMostPieces = 4;

std::vector<isl::set> disjoint_pieces(const isl::set& set) {
  std::vector<isl::set> pieces;
  const isl::set disjoint = isl::manage(isl_set_make_disjoint(set.coalesce().release()));
  isl_set_foreach_basic_set(
      disjoint.get(),
      [](isl_basic_set* piece, void* user) {
        static_cast<std::vector<isl::set>*>(user)->push_back(isl::manage(isl_set_from_basic_set(piece)));
        return isl_stat_ok;
      },
      &pieces);
  return pieces;
}

/// { x -> y : all but `dim` are equal }
isl::map along(const isl::set& domain, int dim) {
  isl_map* same = isl_map_universe(isl_space_map_from_set(isl_set_get_space(domain.get())));
  for (int k = 0; k < static_cast<int>(isl_set_dim(domain.get(), isl_dim_set)); ++k) {
    if (k != dim) same = isl_map_equate(same, isl_dim_in, k, isl_dim_out, k);
  }
  return isl::manage(same).intersect_domain(domain);
}

isl::pw_aff number_on(const isl::set& domain, long number) {
  return isl::manage(isl_pw_aff_val_on_domain(domain.copy(), isl_val_int_from_si(isl_set_get_ctx(domain.get()), number)));
}

}  // namespace

std::optional<RowPoints> points_of_row(const isl::set& points, const isl::set& domain, int dim) {
  const isl::map row = along(domain, dim);
  const isl::pw_aff here = dim_function(domain, dim);
  RowPoints result{number_on(domain, 0), isl::set::empty(domain.space())};
  const std::vector<isl::set> pieces = disjoint_pieces(points);
  if (pieces.empty() || pieces.size() > kMostPieces) return std::nullopt;
  for (const isl::set& piece : pieces) {
    const isl::map met = row.intersect_range(piece);
    const isl::pw_aff first = isl::manage(isl_map_dim_min(met.copy(), dim)), last = isl::manage(isl_map_dim_max(met.copy(), dim));
    const isl::set between = domain.intersect(first.le_set(here)).intersect(here.le_set(last));
    if (!between.is_equal(piece)) return std::nullopt;
    const isl::set some = met.domain();
    result.count = result.count.union_add(last.sub(first).add_constant(1L));
    result.some = result.some.unite(some);
  }
  result.count = result.count.coalesce().gist(domain);
  result.some = result.some.coalesce();
  return result;
}

}  // namespace nestor
