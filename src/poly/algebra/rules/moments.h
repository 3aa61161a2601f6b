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
  std::vector<isl::pw_aff> counts;  ///< { element of the lead's tensor -> [number of values] } of each reduced dim (dense_counts)
  std::vector<MomentsFollower> followers;
};

/// nullopt when the rule does not apply; then `why` says which side condition fails.
std::optional<MomentsPlan> analyse_moments(const Nest& nest, const std::string& lead, std::string* why = nullptr);
Composite moments_composite(const MomentsPlan& plan);

/// Followers that see the mean only through an elementwise statement over the lead's result (mean = sum / n) get its value inlined.
Nest prepare_moments(const Nest& nest, const std::string& lead);

}  // namespace nestor
