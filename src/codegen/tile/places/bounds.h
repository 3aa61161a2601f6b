// Bounds: the interval that a loop or a dim of an op runs over, as expressions.
#pragma once

#include "codegen/tile/places/isl_convert.h"

#include <optional>

namespace nestor {

/// What bounds_of() says of loops that it cannot bound.
inline constexpr const char* kNoBounds = "have no bounds that can be written down";

struct Interval {
  IntExpr lower;                           ///< over the outer loops and parameters
  IntExpr upper;                           ///< exclusive
  std::optional<std::int64_t> max_extent;  ///< constant bound of upper - lower, if one is known
  isl::map filled;                         ///< { [outer] -> [x] : lower <= x < upper }, at least on the domain of the values
  std::optional<isl::map> written{};       ///< the same for all outer iterations; nothing: not known
};

/// An interval around `values`, { [outer] -> [x] }, for outer iterations in `known`, { [outer] }.
/// Bounds are minima and maxima of affine functions wherever isl describes the values by conjunctions without divisions; where these
/// are several (a mask with "or"), the interval may be larger than the smallest one, within the same constant extent. Where the
/// smallest one takes many pieces, it is that of `around`, which contains the values, or one without divisions: users test what they
/// need. Throws UserError where the values have no bounds.
Interval bounds_of(const isl::map& values, const isl::set& known, const DimNames& names,
                   const std::optional<isl::map>& around = std::nullopt);

}  // namespace nestor
