// From isl's affine objects to the integer expressions of a tile program.
#pragma once

#include "poly/isl/context.h"
#include "support/int_expr.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace nestor {

/// How the dimensions of an isl object are called in the program: input (or set) dims by position, parameters by name
/// unless a value is known for them.
struct DimNames {
  std::vector<std::string> inputs;
  const std::map<std::string, std::int64_t>* fixed = nullptr;
};

/// `[params] -> { [inputs] -> [affine] }` as an expression, rounded down where it is fractional.
IntExpr to_int_expr(const isl::aff& affine, const DimNames& names);

/// A piecewise function; min and max are recognised, other pieces become a chain of selections. The function must be
/// defined wherever the expression is evaluated.
IntExpr to_int_expr(const isl::pw_aff& function, const DimNames& names);

/// Membership of a point in `set`, as an expression that is 0 or 1; undefined for the whole space.
IntExpr to_condition(const isl::set& set, const DimNames& names);

}  // namespace nestor
