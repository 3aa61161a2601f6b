// Dims of statements that have all their values, whatever the others are: what rules may join.
#pragma once

#include "poly/nest/nest.h"

#include <cstdint>
#include <set>
#include <vector>

namespace nestor {

/// Those of `set` where 0 <= dim < bound, a function of the parameters.
isl::set below(const isl::set& set, int dim, const isl::pw_aff& bound);

/// The set as if it said nothing of these dims.
isl::set without_dims(const isl::set& set, const std::vector<int>& dims);

/// Are the points a box along these dims, whatever the others are? Then all that follow these dims alone share one table.
bool is_box_along(const Nest& nest, const Statement& statement, const std::set<int>& dims);

/// The domain with any values of two dims.
isl::set with_any_values(const Nest& nest, const Statement& statement, int a, int b);

/// Do both dims have all their values, `extent` of the inner one, whatever the others are?
bool have_all_values(const Nest& nest, const Statement& statement, int outer, int inner, std::int64_t extent);

/// Two dims of a statement that become one: extent * outer + inner.
struct JoinedDims {
  int outer = 0, inner = 0;
  std::int64_t extent = 1;  ///< of the inner one
};

/// The statement with one dim s for both, in the place of the inner one; what follows them follows floor(s / extent) and s mod extent. They have
/// all their values.
Statement with_joined_dims(const Nest& nest, const Statement& statement, const JoinedDims& joint);

}  // namespace nestor
