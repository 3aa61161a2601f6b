// What is known of values that no point of a tile program has: elements of fragments outside of an op's points, computed all the same.
#pragma once

#include "poly/nest/nest.h"

#include <functional>
#include <limits>
#include <vector>

namespace nestor::nvptx {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Values that an element may have: NaN, either infinity, finite ones from `low` to `high`.
struct Possible {
  bool nan = false, below = false, above = false, finite = false;
  double low = 0, high = 0;  ///< of finite ones

  static Possible anything();
  static Possible any_finite();
  static Possible exactly(double value);
  bool is(double value) const;
  bool only_nan() const { return nan && !below && !above && !finite; }
  Possible either(const Possible& other) const;
};

/// The values of `expr` whose reads have those that `read` says. Sums and products of finite numbers are taken to be finite.
Possible possible_values(const ScalarExpr& expr, const std::vector<ScalarParam>& scalars,
                         const std::function<Possible(int)>& read);

}  // namespace nestor::nvptx
