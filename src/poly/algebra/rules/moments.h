// What the moments rule knows about a mean and the sums of squares around it; the split rule builds on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "poly/algebra/values/polynomial.h"
#include "poly/nest/composite.h"
#include "poly/nest/nest.h"

namespace nestor {

/// r = sum of factor * (x - share * m)^2, where x, factor and share are over the follower's own reads and indices.
struct MomentsFollower {
  std::string statement;
  Monomial factor;  ///< the same for all points of an element
  Monomial share;   ///< mean = share * m
  Polynomial x;
  int lead_read = -1;       ///< ordinal of the read of m
  isl::map lead_instances;  ///< { Follower -> Lead } with the same x, one to one
  ScalarExpr correction;
};

/// m = sum of scale * x over the lead's reads and indices, and what follows it.
struct MomentsPlan {
  std::string lead;
  std::string lead_tensor;
  Monomial scale;  ///< the same for all points
  Polynomial x;
  isl::pw_aff count;  ///< { element of the lead's tensor -> [number of points] }
  std::vector<MomentsFollower> followers;
};

/// nullopt when the rule does not apply; then `why` says which side condition fails.
std::optional<MomentsPlan> analyse_moments(const Nest& nest, const std::string& lead, std::string* why = nullptr);
Composite moments_composite(const MomentsPlan& plan);

/// Followers that see the mean only through an elementwise statement over the lead's result (mean = sum / n) get its value inlined.
Nest prepare_moments(const Nest& nest, const std::string& lead);

/// { element of the lead's tensor } -> number of points that the lead adds to it, if they are a dense range of one dim.
std::optional<isl::pw_aff> dense_count(const Nest& nest, const Statement& lead);

}  // namespace nestor
