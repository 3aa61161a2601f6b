// Magnitudes of ranges and of types.
#include "poly/algebra/analysis/value_range.h"

#include <algorithm>
#include <cmath>

namespace nestor {

double ValueRange::magnitude() const { return low > high ? 0 : std::max(std::fabs(low), std::fabs(high)); }

bool ValueRange::within(int doublings) const {
  if (low > high) return true;
  const double least = std::ldexp(1, -doublings), most = std::ldexp(1, doublings);
  return magnitude() <= most && (low >= least || high <= -least || (low == 0 && high == 0));
}

double largest_of(ElementType type) {
  if (type == ElementType::f16) return 65504;
  return type == ElementType::bf16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}

}  // namespace nestor
