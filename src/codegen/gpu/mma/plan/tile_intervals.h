// Iterations at which a union of conditions holds: an interval for each of its pieces, few of which stand apart.
#pragma once

#include "support/int_expr.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace nestor::nvptx {

/// Iterations from <= i < to where `holds` (undefined: always), else none; none where to < from.
struct Interval {
  IntExpr from, to, holds{};
  IntExpr first{}, end{};  ///< the bounds before they were cut to those of the loop; undefined: there are several
};

/// What is taken for a distance that a piece asks for (its least value over a tile); nothing: it is not linear.
using DistanceOf = std::function<std::optional<IntExpr>(const IntExpr&)>;

/// The iterations of `within` of the loop over `var` at which all distances of a piece (mask_cnf.h) are >= 0. Nothing where one of them is
/// not linear.
std::optional<Interval> interval_of(const std::vector<IntExpr>& piece, const std::string& var, const Interval& within,
                                    const DistanceOf& distance_of);

/// The same iterations in fewer intervals without conditions, as far as it shows at sight: where two start or end together, their union is
/// one. All have within.from <= from <= to, unless `within` has not.
std::vector<Interval> joined(std::vector<Interval> intervals, const Interval& within);

/// The union of two intervals as two that follow each other: the first ends where the second starts or before.
std::vector<Interval> in_order(const Interval& a, const Interval& b);

}  // namespace nestor::nvptx
