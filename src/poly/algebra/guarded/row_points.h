// How many points of a set differ from a point in one dim alone.
#pragma once

#include <isl/cpp.h>

#include <optional>

namespace nestor {

struct RowPoints {
  isl::pw_aff count;  ///< { Statement[dims] -> [number] }, free of the dim
  isl::set some;      ///< where it is not 0
};

/// Points of `points`, a part of `domain`, that have the other dims of a point of the domain, whatever its `dim`. nullopt: it is no sum of lengths of
/// intervals.
std::optional<RowPoints> points_of_row(const isl::set& points, const isl::set& domain, int dim);

}  // namespace nestor
