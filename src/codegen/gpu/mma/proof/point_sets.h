// Small operations on sets of points.
#pragma once

#include "codegen/gpu/mma/proof/tensor_points.h"

#include <isl/set.h>

namespace nestor::nvptx {

inline isl::set none_of(const isl::set& like) { return isl::manage(isl_set_empty(isl_set_get_space(like.get()))); }
inline bool is_none(const isl::set& set) { return set.is_empty(); }

/// The points with any value of a coordinate.
inline isl::set free_along(const isl::set& set, int coordinate) {
  isl_set* rest = isl_set_project_out(set.copy(), isl_dim_set, static_cast<unsigned>(coordinate), 1);
  return isl::manage(isl_set_insert_dims(rest, isl_dim_set, static_cast<unsigned>(coordinate), 1));
}

}  // namespace nestor::nvptx
